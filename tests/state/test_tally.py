"""The sums over a sweep's runs: each from events with round numbers, so that what must come out is plain arithmetic."""

import math

import pytest

from sweep.outcomes import Outcome
from sweep.planning.runs import ASSUMED_RUN_S, PlannedRun
from sweep.state.events import PilotGone, PilotIntended, PilotStarted, RerunRequested
from sweep.state.retries import OUTSIDE
from sweep.state.state import SweepState
from sweep.state.tally import ASSUMED_FACTOR, MIN_ENDED, Tally, elapsed_s
from tests.support.made_events import recorded, started, state_of


def planned(name, *, nodes=1, predicted_s=100.0, model="1B", repeat=0):
    """A repeat's name is that of the first run and its number: a1."""
    text = f'{{"layout":"{name[0]}","params":{{"repeat":5}},"repeat":{repeat},"workload":"transformer"}}'
    return PlannedRun(name, model, nodes, predicted_s, text)


def ended(run, start, took, *, outcome=Outcome.OK, number=1, **facts):
    facts |= {"started_at": start, "ended_at": start + took}
    return [started(run, start, number), recorded(run, outcome, start + took, number, **facts)]


def pilot(start, *, nodes=1, until=None, name="p1", group=""):
    found = [
        PilotIntended(time=start, pilot=name, token=name, nodes=nodes, time_limit_s=3600, node_group=group),
        PilotStarted(time=start + 10, pilot=name, job_id="1", nodes=tuple(f"n{i}" for i in range(nodes))),
    ]
    return found if until is None else [*found, PilotGone(time=until, pilot=name, word="COMPLETED", ended_at=until)]


def tally(runs, *events, gpus=8, serial=False):
    flat = (event for group in events for event in (group if isinstance(group, list) else [group]))
    return Tally(runs, {"": gpus}, serial=serial).update(state_of(*flat))


A, B, C, D = (planned(name) for name in "abcd")


def test_each_run_is_counted_once_by_the_state_of_the_attempt_that_counts():
    found = tally(
        [A, B, C, D, *(planned(name) for name in "efg")],
        ended("a", 0, 50),
        ended("e", 0, 5, outcome=Outcome.NAN_LOSS),
        ended("f", 0, 5, outcome=Outcome.OOM_CUDA),
        ended("b", 0, 10, outcome=Outcome.OOM_CUDA, message="no room"),
        started("c", 60),
        ended("not in the plan", 0, 5),
    )
    assert found.counts() == {"ok": 1, "oom_cuda": 2, "nan_loss": 1, "running": 1, "waiting": 2}
    assert found.total == 7
    assert list(found.failures.items()) == [("oom_cuda", 2), ("nan_loss", 1)], "the most frequent first"
    assert (found.example("oom_cuda"), found.example("hang")) == ("no room", "")
    assert [planned.run_id for planned, _ in found.in_flight()] == ["c"]


def test_a_run_has_ended_as_something_once_it_is_not_tried_again_and_no_attempt_was_ok():
    lost = [event for number in range(1, 6) for event in ended("a", number, 1, outcome=Outcome.LOST, number=number)]
    once, ok = ended("b", 0, 5, outcome=Outcome.LOST), [ended("c", 0, 5), ended("c", 9, 5, outcome="lost", number=2)]
    found = tally([A, B, C, D], lost, once, *ok, ended("d", 0, 10, outcome=Outcome.OOM_CUDA))
    assert found.ended_as(OUTSIDE) == ["a"]


def test_what_must_not_start_is_counted_by_its_reason_unless_it_has_begun():
    found = tally([A, B, C], ended("a", 0, 50))
    skipped = {"a": "skipped", "b": "skipped", "of no plan": "skipped"}
    assert found.counts(skipped) == {"ok": 1, "skipped": 1, "waiting": 1}
    assert found.counts() == {"ok": 1, "waiting": 2}, "the sums themselves are unchanged"


def test_a_run_that_is_to_be_measured_again_waits_then_runs_then_is_done():
    state = SweepState()
    found = Tally([A], {"": 8}, serial=False)
    for events, word in [
        (ended("a", 0, 50), "ok"),
        ([RerunRequested(time=60, run_id="a", after=1)], "waiting"),
        ([started("a", 70, 2)], "running"),
        (ended("a", 70, 50, number=2), "ok"),
    ]:
        state.apply_all(events)
        assert found.update(state).counts() == {word: 1}


def test_a_cell_knows_its_best_and_what_is_done():
    rates = {"a": 1000.0, "b": 3000.0}
    found = tally(
        [A, B, C, D, planned("e", nodes=2)],
        *(ended(run, 0, 5, tokens_per_second_per_gpu=rate) for run, rate in rates.items()),
        ended("c", 0, 5, outcome=Outcome.OOM_CUDA),
        started("d", 10),
    )
    cell = found.cells["1B", 1]
    assert (cell.runs, cell.done, cell.best, cell.winner) == (4, 3, 3000.0, "b")
    other = found.cells["1B", 2]
    assert (other.runs, other.done, other.best, other.winner) == (1, 0, None, None)


def test_a_cells_best_is_the_configuration_with_the_highest_median_of_its_repeats_and_its_middle_run():
    """A first run was a fast one: alone it leads, with its repeats another configuration does."""
    runs = [A, B, planned("a1", repeat=1), planned("a2", repeat=2), planned("b1", repeat=1)]
    rates = {"a": 3000.0, "a1": 1000.0, "a2": 1200.0, "b": 1500.0, "b1": 1300.0}
    done = [ended(run, 0, 5, tokens_per_second_per_gpu=rate) for run, rate in rates.items()]
    first = tally(runs, *done[:1], *done[3:4]).cells["1B", 1]
    assert (first.best, first.winner) == (3000.0, "a")
    cell = tally(runs, *done).cells["1B", 1]
    assert sorted(cell.medians()) == [1200.0, 1400.0]
    assert (cell.best, cell.winner in ("b", "b1")) == (1400.0, True)
    assert (cell.median_with("a"), cell.median_with("a2"), cell.median_with("c")) == ((1200.0, 3), (1200.0, 3), None)
    with_one_less = tally(runs, *done, ended("b", 0, 5, outcome=Outcome.CONFIG_MISMATCH)[1]).cells["1B", 1]
    assert (with_one_less.best, with_one_less.winner) == (1300.0, "b1"), "a record that is corrected counts no longer"


def test_the_latest_are_those_that_ended_last():
    found = tally([A, B, C, D], ended("a", 0, 90), ended("b", 0, 70), ended("c", 0, 80), started("d", 0))
    assert [planned.run_id for planned, _ in found.latest(9)] == ["a", "c", "b"]
    assert len(found.latest(2)) == 2


@pytest.mark.parametrize(
    ("until", "now", "expected_s"), [(None, 500.0, 400.0), (300.0, 500.0, 200.0), (None, 100.5, 0.5), (None, 99.0, 0.0)]
)
def test_time_passes_from_the_first_submission_and_stops_when_no_pilot_is_open(until, now, expected_s):
    state = SweepState()
    assert elapsed_s(state, now) is None
    state.apply_all(pilot(100, name="p3")[1:])
    assert elapsed_s(state, now) is None, "a pilot that the launcher's journal does not know yet"
    state = state_of(*pilot(100, until=until), *pilot(150, until=until, name="p2"))
    assert elapsed_s(state, now) == expected_s


def test_time_passes_for_a_pilot_that_was_given_up_and_started_after_all():
    late = PilotStarted(time=300.0, pilot="p1", job_id="1", nodes=("n0",))
    assert elapsed_s(state_of(*pilot(100, until=200.0), late), 500.0) == 400.0


def test_a_typical_run_takes_the_mean_of_the_attempts_that_ended_and_lost_ones_show_nothing():
    lost = ended("c", 0, 900, outcome=Outcome.LOST)
    events = [*ended("a", 0, 40), *ended("b", 0, 80), *lost]
    assert tally([A, B, C], events).typical_run_s == 60.0
    assert tally([A]).typical_run_s == ASSUMED_RUN_S


def test_what_waits_takes_its_predicted_node_seconds_on_the_nodes_of_the_running_pilots():
    wide = planned("w", nodes=4, predicted_s=50.0)
    assert tally([A, wide]).seconds_left(0.0) == (100 + 4 * 50) / 4, "without a pilot: one of the widest"
    assert tally([A, wide], pilot(0, nodes=2)).seconds_left(50.0) == 300 / 2
    assert tally([A, wide], pilot(0, nodes=2, until=40)).seconds_left(50.0) == 300 / 4, "a pilot that ended is none"
    assert tally([A, wide], pilot(0, nodes=4), serial=True).seconds_left(50.0) == 150.0, "one run at a time"
    assert tally([A, B]).seconds_left(0.0, {"a": "skipped", "of no plan": "skipped"}) == 100.0
    assert tally([planned("u", predicted_s=None)]).seconds_left(0.0) == ASSUMED_RUN_S


def test_of_a_run_in_flight_only_the_rest_is_left():
    assert tally([A], started("a", 10)).seconds_left(40.0) == 70.0
    assert tally([A], started("a", 10)).seconds_left(400.0) == 0.0
    assert tally([A, B], started("a", 10)).seconds_left(1000.0) == 100.0, "what waits stays as it is"


def test_the_estimate_is_off_by_two_standard_errors_and_towards_the_ended_by_the_assumed_attempt():
    """Ratios 1, 2 and 4 to the prediction; one run waits."""
    took = (100, 200, 400)
    assert len(took) == MIN_ENDED
    runs = [A, B, C, D]
    found = tally(runs, *(ended(run.run_id, 0, s) for run, s in zip(runs, took, strict=False)))
    error = math.log(2) * math.sqrt(1 / 3 + 1 / 1)  # the standard deviation of log 1, log 2, log 4 is log 2
    changed = math.log((700 / 300) / (800 / 400))
    left_s = found.seconds_left(400.0)
    assert found.range_left(400.0) == pytest.approx(
        (left_s * math.exp(-2 * error), left_s * math.exp(2 * error + changed))
    )
    again = [RerunRequested(time=1e3, run_id="c", after=1), *ended("c", 2e3, 400, number=2)]
    twice = tally(runs, *(ended(run.run_id, 0, s) for run, s in zip(runs, took, strict=False)), again)
    error = math.log(2) * math.sqrt((1 / 4 + 1 / 1) * 4 / 3 * ((1 + 4 + 4) / 4 - ((1 + 2 + 2) / 4) ** 2))  # 1, 2, 4, 4
    assert twice.range_left(400.0)[0] == pytest.approx(twice.seconds_left(400.0) * math.exp(-2 * error))
    few = tally(runs, ended("a", 0, 100), ended("b", 0, 400))
    assert few.range_left(400.0) == pytest.approx((few.seconds_left(400.0) / 2, few.seconds_left(400.0) * 2))
    assert tally(runs).range_left(0.0) == (400 / 2, 400 * 2)
    assert ASSUMED_FACTOR == 2.0


@pytest.mark.parametrize("took", [1.0, 3.0, 100.0, 1000.0])
@pytest.mark.parametrize("known", [0, 1, 2])
def test_the_first_ranges_hold_what_runs_of_one_duration_take(took, known):
    """A start takes nearly nothing where the modules are preloaded, so that attempts end far sooner than predicted."""
    runs = [planned(f"r{at}", predicted_s=32.0) for at in range(12)]
    found = tally(runs, *(ended(run.run_id, 0, took) for run in runs[:known]))
    low, high = found.range_left(0.0)
    left = (12 - known) * took
    if known:
        assert low <= left * (1 + 1e-9)
        assert left <= high * (1 + 1e-9)
    else:
        assert (low, high) == pytest.approx((12 * 2.0, 12 * 64.0)), "without the assumed start, and twice"
    assert tally([planned("short", predicted_s=10.0)]).range_left(0.0)[0] == 0.0, "shorter than the assumed start"


def test_without_a_prediction_nothing_is_known_until_an_attempt_has_ended():
    runs = [planned(name, predicted_s=None) for name in "ab"]
    assert not tally(runs).informed
    assert not tally(runs, started("a", 0)).informed
    assert tally(runs, ended("a", 0, 3)).informed
    assert tally([A]).informed


def test_gpu_hours_are_those_that_pilots_held_and_those_that_attempts_used():
    wide = planned("w", nodes=2)
    found = tally(
        [A, wide], pilot(0, nodes=2, until=3610), pilot(3600, name="p2"), ended("w", 100, 900), started("a", 3700)
    )
    held_s = 2 * 8 * 3600 + 1 * 8 * (4000 - 3610)
    used_s = 2 * 8 * 900 + 1 * 8 * (4000 - 3700)
    assert found.gpu_hours(4000.0) == (pytest.approx(held_s / 3600), pytest.approx(used_s / 3600))


def test_gpus_of_a_node_are_those_of_its_group():
    fast, plain = planned("f", model="1B@fast"), planned("p", model="1B@plain")
    state = state_of(*ended("f", 0, 3600), *ended("p", 0, 3600), *pilot(0, until=3610, group="fast"))
    assert Tally([fast, plain], {"fast": 8, "plain": 4}, serial=False).update(state).gpu_hours(9000.0) == (8.0, 12.0)
    assert Tally([fast], {"other": 8}, serial=False).update(state).gpu_hours(9000.0) == (0.0, 0.0), (
        "of an unknown group none counts"
    )


def test_another_state_is_counted_from_its_beginning_and_one_of_which_nothing_was_read_stays():
    first, second = state_of(*ended("a", 0, 50)), state_of(*ended("b", 0, 50, outcome=Outcome.OOM_CUDA))
    found = Tally([A, B], {"": 8}, serial=False)
    assert found.update(first).counts() == {"ok": 1, "waiting": 1}
    assert found.update(second).counts() == {"oom_cuda": 1, "waiting": 1}
    assert found.update(second).typical_run_s == 50.0, "read once"


def test_what_is_left_out_saves_what_it_would_have_taken_as_far_as_is_known():
    wide = planned("w", nodes=4, predicted_s=50.0)
    skipped = {"b": "not_run", "w": "not_run", "a": "not_run", "unknown": "not_run"}  # a was measured all the same
    fresh = tally([B, wide])
    assert fresh.saved_gpu_hours({}) == {}
    assert fresh.saved_gpu_hours(skipped) == {"": pytest.approx((8 * 100 + 32 * 50) / 3600)}
    slow = tally([A, B, wide], ended("a", 0, 300))  # three times its prediction; one more counts as predicted
    assert slow.saved_gpu_hours(skipped) == {"": pytest.approx(2 * (8 * 100 + 32 * 50) / 3600)}


def test_attempts_of_a_run_that_is_measured_twice_count_once_each():
    """100 s predicted; 200 s and 300 s taken."""
    asked = RerunRequested(time=250, run_id="a", after=1)
    found = tally([A, B], ended("a", 0, 200), [asked], ended("a", 300, 300, number=2))
    assert found.seconds_left(600.0) == pytest.approx(100 * (500 + 100) / (200 + 100))


def test_sums_that_follow_a_state_are_those_counted_from_its_beginning():
    """After every event: a rerun, a retry, and a lost attempt whose own record comes after the next one's."""
    state, runs = SweepState(), [A, B, C]
    followed = Tally(runs, {"": 8}, serial=False)
    late = ended("b", 0, 50, rate=9.0)[1]
    for event in (
        *ended("a", 0, 200, rate=5.0), RerunRequested(time=250, run_id="a", after=1), *ended("a", 300, 300, number=2),
        *ended("b", 0, 50, outcome=Outcome.LOST), *ended("b", 60, 40, number=2, rate=7.0), late,
        *ended("c", 0, 10, outcome=Outcome.NODE_FAIL), *ended("c", 20, 30, number=2, rate=6.0),
    ):  # fmt: skip
        state.apply_all([event])
        one, other = followed.update(state), Tally(runs, {"": 8}, serial=False).update(state)
        assert (one.counts(), one.cells, one.in_flight()) == (other.counts(), other.cells, other.in_flight())
        for sums in (Tally.seconds_left, Tally.range_left, Tally.gpu_hours):
            assert sums(one, 600.0) == pytest.approx(sums(other, 600.0))


def test_a_run_without_a_prediction_is_taken_to_last_as_long_as_the_mean_of_the_others():
    unknown = planned("u", nodes=2, predicted_s=None)
    runs = [A, planned("long", predicted_s=300.0), unknown]
    assert tally(runs).seconds_left(0.0) == (100 + 300 + 2 * 200) / 2
    assert tally(runs, started("u", 50)).seconds_left(150.0) == (100 + 300 + 2 * (200 - 100)) / 2
    assert tally(runs).saved_gpu_hours({"u": "not_run"}) == {"": pytest.approx(2 * 8 * 200 / 3600)}


def test_no_time_is_left_where_rounding_would_make_it_negative():
    runs = [planned(name, predicted_s=seconds) for name, seconds in (("a", 0.3), ("b", 0.2), ("c", 0.1))]
    assert sum([0.3, 0.2, 0.1]) < sum([0.1, 0.2, 0.3])
    assert tally(runs).seconds_left(0.0, dict.fromkeys("cba", "skipped")) == 0.0


def test_runs_in_flight_widen_the_range_as_little_as_those_that_wait():
    events = [event for run, took in zip("abc", (100, 200, 400), strict=True) for event in ended(run, 0, took)]
    e = planned("e")
    both_wait = tally([A, B, C, D, e], events)
    one_runs = tally([A, B, C, D, e], events, started("d", 400))
    widths = [high / low for low, high in (found.range_left(400.0) for found in (both_wait, one_runs))]
    assert widths[0] == pytest.approx(widths[1])
    assert widths[0] < (lambda low, high: high / low)(*tally([A, B, C, D], events).range_left(400.0))


def test_with_nothing_left_both_ends_of_the_range_are_zero():
    runs = [A, B, C]
    assert tally([]).range_left(0.0) == (0.0, 0.0)
    assert tally(runs, *(ended(run.run_id, 0, 50) for run in runs)).range_left(99.0) == (0.0, 0.0)


@pytest.mark.parametrize("took", range(1, 60))
def test_attempts_that_all_took_the_same_multiple_of_the_prediction_have_no_spread(took):
    """Of 100, 200 and 300 s predicted, the first twice."""
    runs = [planned(f"r{at}", predicted_s=100.0 * (at + 1)) for at in range(MIN_ENDED)]
    again = [RerunRequested(time=1e3, run_id="r0", after=1), *ended("r0", 2e3, took, number=2)]
    found = tally([*runs, D], *(ended(run.run_id, 0, took * (at + 1)) for at, run in enumerate(runs)), again)
    change = (took / 100) / ((7 * took + 175) / 875)
    left_s = found.seconds_left(400.0)
    expected = (left_s * min(1.0, change), left_s * max(1.0, change))
    assert found.range_left(400.0) == pytest.approx(expected, rel=1e-6)


def test_an_attempt_that_ended_as_it_began_counts_as_a_millisecond():
    """Ratios 1e-5, 1 and 4 to the prediction; three that took no time at all took a millisecond together."""
    runs = [A, B, C, D]
    found = tally(runs, *(ended(run, 0, took) for run, took in zip("abc", (0, 100, 400), strict=True)))
    logs = [math.log(ratio) for ratio in (1e-5, 1, 4)]
    mean = sum(logs) / 3
    error = math.sqrt(sum((log - mean) ** 2 for log in logs) / 2 * (1 / 3 + 1))
    changed = math.log((500 / 300) / (600 / 400))
    left_s = found.seconds_left(400.0)
    expected = (left_s * math.exp(-2 * error), left_s * math.exp(2 * error + changed))
    assert found.range_left(400.0) == pytest.approx(expected, rel=1e-9, abs=0)
    none = tally(runs, *(ended(run, 0, 0) for run in "abc"))
    assert none.seconds_left(1.0) == 25.0
    assert none.range_left(1.0) == pytest.approx((25 * (1e-3 / 300) / 0.25, 25.0))


def test_a_pilot_that_began_by_a_clock_ahead_of_ours_held_nothing_yet():
    assert tally([A], pilot(100), started("a", 130)).gpu_hours(105.0) == (0.0, 0.0)


def test_an_attempt_of_which_no_start_is_known_shows_nothing_of_durations():
    found = tally([A], recorded("a", Outcome.UNKNOWN, 50.0, ended_at=50.0))
    assert found.counts() == {"waiting": 1}
    assert found.typical_run_s == ASSUMED_RUN_S
