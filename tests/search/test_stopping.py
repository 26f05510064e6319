"""When a run has lost: by the best of its cell, by two iterations or one twice as slow, and hardly ever the fastest."""

import math

import numpy as np
import pytest

from sweep.contract import SlowBound
from sweep.outcomes import Outcome
from sweep.physics.statistics import student_quantile
from sweep.search.stopping import Stopping, factor
from tests.support.configurations import run
from tests.support.made_events import planned_as, recorded

BOUND = SlowBound(1.0, (math.inf, 1.5), 1.2, "best.1")


@pytest.mark.parametrize(
    ("warmup", "timed", "lost"),
    [
        ([9.0], [], False),  # the first compiles
        ([9.0, 2.9], [], False),  # under twice the best's own second one
        ([9.0, 3.1], [], True),
        ([9.0, 1.9], [1.3], True),  # two that are slower than theirs by the factor
        ([9.0, 1.7], [1.3], False),  # one alone may have been disturbed
        ([9.0, 1.7], [1.3, 1.1, 1.3], True),
        ([9.0, 0.0], [1.3], False),  # not known
        ([], [2.1], True),
    ],
)
def test_two_iterations_decide_or_one_of_twice_the_time(warmup, timed, lost):
    assert BOUND.lost(warmup, timed) is lost


def planned(**values):
    return planned_as(run(**values))


def ended(one, step_s, **changes):
    times = {"step_times_s": (step_s,) * 5, "warmup_times_s": (9.0, 2 * step_s)}
    return recorded(one.run_id, step_time_median_s=step_s, **times | changes)


def test_the_bound_is_the_fastest_of_the_cell_for_as_many_tokens():
    best, other, elsewhere = planned(mbs=1), planned(mbs=2), planned(mbs=2, model="8B")
    stopping = Stopping([best, other, elsewhere], 1.3)
    assert stopping.bound(other, again=False) is None, "nothing was measured"
    stopping.apply_all([ended(other, 1.0, outcome=Outcome.HANG), ended(best, 2.0)])
    bound = stopping.bound(other, again=False)
    tokens = other.run().global_batch_tokens / best.run().global_batch_tokens
    assert bound.step_s == pytest.approx(2.0 * tokens)
    assert bound.warmup_s == pytest.approx((9.0 * tokens, 4.0 * tokens))
    assert (bound.factor, bound.set_by) == (1.3, f"{best.run_id}.1")
    assert stopping.bound(elsewhere, again=False) is None, "of another cell"
    assert stopping.bound(other, again=True) is None, "a person asks for it"


@pytest.mark.parametrize(("how", "wrong"), [
    ("auto", {"suspect": True}), ("auto", {"stopped": "slow"}), ("auto", {"outcome": Outcome.HANG}), ("off", {}),
])  # fmt: skip
def test_what_is_not_to_be_trusted_sets_no_bound_and_off_sets_none(how, wrong):
    one, other = planned(mbs=1), planned(mbs=2)
    stopping = Stopping([one, other], how)
    stopping.apply_all([ended(one, 1.0, **wrong)])
    assert stopping.bound(other, again=False) is None


def test_repeats_are_measured_in_full_unless_their_first_run_was_stopped():
    first, best, loser = planned(mbs=1), planned(mbs=2, repeat=1), planned(mbs=4)
    again = planned(mbs=4, repeat=1)
    stopping = Stopping([first, best, loser, again], "auto")
    stopping.apply_all([ended(first, 1.0)])
    assert stopping.bound(best, again=False) is None
    assert stopping.bound(again, again=False) is None
    stopping.apply_all([ended(loser, 2.0, stopped="slow")])
    assert stopping.bound(again, again=False) is not None


@pytest.mark.parametrize(("between", "within"), [(0.02, 0.02), (0.005, 0.02), (0.05, 0.02)])
def test_the_fastest_is_hardly_ever_stopped_by_auto(between, within):
    """100,000 cells of one layout as fast as the best measured, whose spread is known by ten pairs of repeats."""
    random = np.random.default_rng(1)
    stopped, cells = 0, 100_000
    for _ in range(50):
        repeats = (between * random.standard_normal((10, 2))).tolist()
        iterations = (within * random.standard_normal((20, 5))).tolist()
        limit = math.log(factor(repeats, iterations))
        size = cells // 50
        ahead = between * (random.standard_normal(size) - random.standard_normal(size))
        both = ahead[:, None] + within * random.standard_normal((size, 2))
        stopped += int((both > limit).all(axis=1).sum())
    assert stopped <= 20, "twice one in 10,000 of them, which docs/search.md states"


@pytest.mark.parametrize(("between", "within"), [(0.1, 0.02), (0.02, 0.1), (0.02, 0.02)])
@pytest.mark.parametrize(("repeated", "timed"), [(7, 7), (7, 8), (8, 7), (8, 8)])
def test_spreads_that_are_known_by_less_than_eight_degrees_of_freedom_are_at_least_the_usual(
    between, within, repeated, timed
):
    """Two runs vary, by twice the variance between runs, and the faster of two iterations by half of that within."""
    least, inside, freedom = 0.02**2, within**2 / 2, max(repeated, 8)
    inside = inside if timed == 8 else max(inside, least)
    outside = between**2 / 2 if repeated == 8 else max(between**2 / 2, inside, least)
    wanted = math.exp(student_quantile(0.9998, freedom) * math.sqrt(2 * outside + inside / 2))
    assert factor([[0.0, between]] * repeated, [[0.0, within]] * timed) == pytest.approx(wanted)


def test_the_bound_is_by_the_best_configurations_median_and_its_last_warm_ups_where_the_work_is_the_same():
    longer = planned_as(run(mbs=2, gas=4) | {"warmup_iterations": 4})
    runs = [planned(mbs=1), planned(mbs=1, repeat=1), longer, planned(mbs=4, gas=2)]
    other = planned(mbs=4, gas=2, workload="megatron")
    stopping = Stopping([*runs, other], "auto")
    stopping.apply_all([ended(longer, 1.5, warmup_times_s=(9.0, 8.0, 7.0)), ended(runs[0], 1.0), ended(runs[1], 3.0)])
    bound = stopping.bound(runs[3], again=False)
    assert (bound.step_s, bound.warmup_s, bound.set_by) == (1.5, (8.0, 7.0), f"{longer.run_id}.1")
    assert stopping.bound(other, again=False).warmup_s == (math.inf, math.inf)
    stopping.apply_all([ended(runs[3], 1.0, warmup_times_s=(7.0, 6.0, 5.0))])
    assert stopping.bound(longer, again=False).warmup_s == (math.inf, 7.0, 6.0, 5.0)


def test_auto_knows_how_much_the_iterations_of_a_run_differ():
    one = planned(mbs=1)
    stopping = Stopping([one], "auto")
    stopping.apply_all([ended(one, 1.0, step_times_s=(1.0, 2.0) * 5)])
    assert stopping.factor() == factor([], [[0.0, math.log(2.0)] * 5]) > 2


def test_auto_is_never_under_its_least():
    quiet = [[0.0, 1e-4]] * 50
    assert factor(quiet, quiet) == 1.1
