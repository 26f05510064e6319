"""Where a step's time goes: each loss by arithmetic on round numbers."""

from dataclasses import replace

import pytest

from sweep.diagnose.gap import ADVICE, RECOMPUTED, MeasuredStep, losses
from sweep.physics.step_time import PARTS

NOTHING = MeasuredStep(step_s=1.0, ideal_s=None, executed_s=None, parts_s=None)
PARTS_S = {"matmul": 0.5, "attention": 0.1, "bubble": 0.3, "data": 0.1}
PREDICTED = MeasuredStep(step_s=1.0, ideal_s=0.4, executed_s=0.4, parts_s=PARTS_S)


def found(facts):
    return {loss.cause: loss.seconds for loss in losses(facts)}


def test_every_part_of_the_model_has_words():
    assert {*ADVICE} == {*PARTS, "kernels"} - {"matmul", "attention"}


def test_nothing_known_is_nothing_claimed():
    assert losses(NOTHING) == []


def test_the_predicted_parts_without_what_the_model_itself_needs_at_the_peak():
    causes = found(PREDICTED)
    assert causes == pytest.approx(
        {ADVICE["bubble"][0]: 0.3, ADVICE["kernels"][0]: 0.6 - 0.4, ADVICE["data"][0]: 0.1}
    )  # 0.4 s are no loss
    assert list(causes) == [ADVICE[name][0] for name in ("bubble", "kernels", "data")], "largest first"


SLOW = "rank 3 on n2"
UNSTEADY = "the fastest of 3 iterations takes 80% of the median"


@pytest.mark.parametrize(("facts", "cause", "seconds", "evidence"), [
    ({"executed_s": 0.4, "ideal_s": 0.3}, RECOMPUTED, 0.1, "33% more FLOPs are executed than the model has"),
    ({"own_times_s": (0.5, 0.8), "slow": SLOW}, "a slow rank", 0.3, f"{SLOW} takes 1.60 times the others' time"),
    ({"own_times_s": (0.0, 0.3), "slow": SLOW}, "a slow rank", 0.3, SLOW),  # the others' time is not known
    ({"clocks_mhz": (1500.0, 2000.0)}, "lowered clocks", 0.25,
     "median clock 1,500 of 2,000 MHz, lowered by power or heat"),
    ({"step_times_s": (0.8, 1.0, 3.0)}, "unsteady iterations", 0.2, UNSTEADY),
    ({"step_times_s": (0.8, 1.0, 3.0), "oversubscribed": True}, "unsteady iterations", 0.2,
     f"{UNSTEADY}; the host had more work than cores meanwhile"),
])  # fmt: skip
def test_a_measured_cause_costs_its_part_of_the_step_and_is_named(facts, cause, seconds, evidence):
    (loss,) = losses(replace(NOTHING, **facts))
    assert (loss.cause, loss.seconds, loss.measured) == (cause, pytest.approx(seconds), True)
    assert loss.evidence == evidence
    assert ("without other work" in loss.advice) is ("oversubscribed" in facts)


@pytest.mark.parametrize("facts", [{"own_times_s": (0.5, 0.8)}, {"step_times_s": (1.0, 1.0, 1.0)}])
def test_where_no_rank_is_clearly_slower_and_no_iteration_differs_nothing_is_lost(facts):
    assert losses(replace(NOTHING, **facts)) == []


def test_what_neither_prediction_nor_measurement_explains_is_a_cause_of_its_own():
    slower = replace(PREDICTED, step_s=1.5)
    assert found(slower)["slower than predicted"] == pytest.approx(0.5)
    with_slow_rank = replace(slower, own_times_s=(1.0, 1.4), slow="rank 0")
    assert found(with_slow_rank)["slower than predicted"] == pytest.approx(0.1), "the slow rank explains the rest"
    assert "slower than predicted" not in found(replace(PREDICTED, step_s=0.9))


def test_slower_nodes_cost_what_runs_elsewhere_take_less_without_what_a_slow_rank_explains():
    elsewhere = replace(NOTHING, elsewhere_s=(0.90, 0.92, 0.94), nodes_found=("n3 is excluded: preflight",))
    (loss,) = losses(elsewhere)
    assert (loss.cause, loss.seconds, loss.measured) == ("slower nodes", pytest.approx(0.08), True)
    assert "3 runs of it on other nodes take 920.0 ms (median); n3 is excluded: preflight" in loss.evidence
    both = found(replace(elsewhere, own_times_s=(0.95, 1.0), slow="rank 3 on n3"))
    assert both == pytest.approx({"a slow rank": 0.05, "slower nodes": 0.03})


def test_what_was_found_on_the_nodes_is_evidence_of_a_step_slower_than_predicted():
    slower = replace(PREDICTED, step_s=1.5, nodes_found=("n3: clocks",))
    (loss,) = (loss for loss in losses(slower) if loss.cause == "slower than predicted")
    assert loss.evidence.endswith("; n3: clocks")


def test_without_any_flops_of_the_model_recomputation_is_no_cause():
    assert RECOMPUTED not in found(replace(PREDICTED, ideal_s=0.0, executed_s=0.4))


def test_a_loss_of_just_the_error_of_arithmetic_is_none():
    for step_s, seconds, claimed in ((1.0, 1e-9, False), (1.0, 1.01e-9, True), (9.0, 8e-9, False)):
        facts = replace(NOTHING, step_s=step_s, own_times_s=(0.0, seconds), slow="rank 3 on n2")
        assert bool(losses(facts)) is claimed


def test_of_predicted_parts_each_states_its_share_of_the_step_and_that_it_is_no_measurement():
    by_cause = {loss.cause: loss for loss in losses(replace(PREDICTED, step_s=2.0))}
    bubble = by_cause[ADVICE["bubble"][0]]
    assert (bubble.evidence, bubble.advice, bubble.measured) == (
        "15% of the step by the model",
        ADVICE["bubble"][1],
        False,
    )
    rest = by_cause["slower than predicted"]
    assert (rest.seconds, rest.measured) == (pytest.approx(1.0), True)
    assert rest.evidence == "+100% over the prediction of 1,000 ms"
    (alone,) = losses(replace(NOTHING, step_s=2.0, parts_s={"matmul": 0.5}))
    assert alone.evidence == "+300% over the prediction of 500 ms"


def test_of_kernels_that_the_prediction_leaves_out_nothing_is_lost():
    found_causes = found(replace(NOTHING, executed_s=0.4, ideal_s=0.4, parts_s={"attention": 0.5, "data": 0.2}))
    assert found_causes[ADVICE["kernels"][0]] == pytest.approx(0.1)
    only = found(replace(NOTHING, executed_s=0.4, ideal_s=0.4, parts_s={"matmul": 0.3, "data": 0.2}))
    assert ADVICE["kernels"][0] not in only, "faster than the peak: an error of the prediction, and no loss"
