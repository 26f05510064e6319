"""What an out-of-memory rules out: a partial order, and one that the memory model agrees with."""

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from sweep.outcomes import Outcome
from sweep.physics import memory
from sweep.physics.profiles import PROFILES
from sweep.search.observations import Known
from tests.support.configurations import made_candidates, run

POWERS = st.sampled_from([1, 2, 4, 8])


SCHEDULES = ("1f1b", "gpipe", "interleaved_1f1b", "interleaved_zero_bubble", "zbv_zero_bubble", "dualpipev")


def candidates(*runs):
    return made_candidates(list(runs))


runs = st.builds(
    run, dp=POWERS, tp=POWERS, pp=POWERS, mbs=st.integers(1, 9), gas=st.sampled_from([1, 2, 4, 8, 16]),
    zero=st.integers(0, 3), recompute=st.sampled_from(["none", "full"]), model=st.sampled_from(["1B", "8B"]),
    pp_schedule=st.sampled_from(SCHEDULES),
)  # fmt: skip


def at_least(needs, a, b):
    """b needs at least as much as a"""
    return bool(needs.dominating(a)[b])


@given(st.lists(runs, min_size=3, max_size=3))
def test_dominance_is_a_partial_order(chosen):
    needs = candidates(*chosen).needs
    assert all(at_least(needs, i, i) for i in range(3))
    if at_least(needs, 0, 1) and at_least(needs, 1, 2):
        assert at_least(needs, 0, 2)
    if at_least(needs, 0, 1) and at_least(needs, 1, 0):
        assert (needs.vectors[0] == needs.vectors[1]).all()
        assert needs.classes[0] == needs.classes[1]


@pytest.mark.parametrize("workload", ["nanotron", "megatron", "transformer", "torchtitan"])
@settings(max_examples=300)
@example(base=run(zero=1, gas=1), more=0, gas=2, fewer_tp=1, fewer_dp=1)
@given(
    base=runs,
    more=st.integers(0, 4),
    gas=st.sampled_from([1, 2, 4, 8, 16]),
    fewer_tp=st.sampled_from([1, 2, 4]),
    fewer_dp=st.sampled_from([1, 2, 4]),
)
def test_what_dominates_needs_no_less_by_the_memory_model(workload, base, more, gas, fewer_tp, fewer_dp):
    layout = base["layout"]
    heavier = {**layout, "micro_batch_size": layout["micro_batch_size"] + more, "grad_accum": gas}
    heavier["tp"] = max(1, layout["tp"] // fewer_tp)
    heavier["dp"] = max(min(2, layout["dp"]), layout["dp"] // fewer_dp)
    pair = candidates({**base, "workload": workload}, {**base, "workload": workload, "layout": heavier})
    in_chunks = workload in ("transformer", "torchtitan") and heavier["tp"] == 1 < layout["tp"]  # the loss
    assert at_least(pair.needs, 0, 1) or gas < layout["grad_accum"] or layout["grad_accum"] == 1 or in_chunks
    assume(at_least(pair.needs, 0, 1))
    light, heavy = memory.peak_bytes(pair.columns, PROFILES[workload])
    assert heavy >= light * (1 - 1e-9)


@pytest.mark.parametrize(
    ("schedule", "workload", "spared"),
    [
        ("gpipe", "nanotron", True),
        ("interleaved_1f1b", "megatron", True),
        ("1f1b", "transformer", True),
        ("1f1b", "somebody", True),
        ("1f1b", "nanotron", False),
    ],
)
def test_what_holds_fewer_samples_is_spared_where_they_are_held(schedule, workload, spared):
    """More replicas take as many micro-batches fewer each: GPipe keeps all of a step, 1F1B those in flight."""
    few, many = (
        run(pp=4, tp=2, dp=dp, gas=gas, pp_schedule=schedule, workload=workload) for dp, gas in ((16, 8), (2, 64))
    )
    known = Known(candidates(many, few))
    known.end(0, Outcome.OOM_CUDA)
    assert known.ruled_out.tolist() == [True, not spared]


@pytest.mark.parametrize(("workload", "fewest"), [("somebody", 8), ("nanotron", 2)])
def test_without_a_pipeline_no_trainer_holds_more_of_a_step_than_a_micro_batch(workload, fewest):
    many, few = (run(dp=128 // gas, gas=gas, workload=workload) for gas in (64, fewest))
    known = Known(candidates(many, few))
    known.end(0, Outcome.OOM_CUDA)
    assert known.ruled_out.all()


@pytest.mark.parametrize(("workload", "zero", "spared"), [
    ("somebody", 0, False), ("somebody", 1, True), ("somebody", 3, True), ("nanotron", 1, False),
])  # fmt: skip
def test_a_step_of_one_micro_batch_is_apart_where_fsdp_may_reduce_at_once(workload, zero, spared):
    """It may then need more than a step of two: nothing follows for those. Without sharding there is nothing to."""
    one, two = (run(dp=8, mbs=4, gas=gas, zero=zero, workload=workload) for gas in (1, 2))
    known = Known(candidates(one, two))
    known.end(0, Outcome.OOM_CUDA)
    assert known.ruled_out.tolist() == [True, not spared]
    unsharded = run(dp=8, mbs=4, gas=2, workload=workload)
    assert at_least(candidates(two, unsharded).needs, 0, 1)


@pytest.mark.parametrize(
    "other",
    [
        run(mbs=1), run(mbs=4, tp=2), run(mbs=4, pp=2), run(mbs=8, recompute="full"), run(mbs=8, model="8B"),
        run(mbs=8, optimizer="sgd"), run(mbs=4, zero=1, dp=2), run(mbs=8, gas=1), run(mbs=4, dp=2),
    ],
)  # fmt: skip
def test_what_may_need_less_is_not_ruled_out(other):
    found = candidates(run(mbs=4, gas=8), other)
    assert not at_least(found.needs, 0, 1)


@given(outcome=st.sampled_from([o for o in Outcome if o is not Outcome.OOM_CUDA]), place=st.integers(0, 3))
def test_no_other_outcome_rules_out_any_run(outcome, place):
    known = Known(candidates(*(run(mbs=mbs) for mbs in (1, 2, 4, 8))))
    known.end(place, outcome)
    assert not known.ruled_out.any()
    assert not known.infeasible.any()
