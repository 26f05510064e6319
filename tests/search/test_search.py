"""A search that follows a sweep: skipped runs, budgets, and decisions that do not depend on when it is read."""

import json
import random
from itertools import product

import pytest

from sweep.outcomes import Outcome
from sweep.physics.hardware import GPUS
from sweep.plugins import STRATEGY
from sweep.search.search import BY_BUDGET, Search, choose, waiting
from sweep.state.events import CancelRequested, RerunRequested
from sweep.state.state import SweepState
from sweep.state.tally import Tally
from tests.support.made_events import planned as made_planned
from tests.support.made_events import recorded, state_of

GPU = GPUS["h100"]


def asked_for(search, runs, sweep_state):
    skipped = search.skipped(sweep_state)
    return [run for run in runs if run.run_id not in skipped]


def runs_of(nodes=(1, 2, 4)):
    axes = enumerate(product((1, 2, 4, 8), (0, 1), (1, 2, 4), nodes))
    return [made_planned(at, nodes=n, mbs=mbs, zero=zero, tp=tp, dp=8 * n // tp) for at, (mbs, zero, tp, n) in axes]


def outcome_of(planned):
    """The truth of a cluster: a number that only the run decides; large micro-batches run out of memory."""
    layout = json.loads(planned.run_json)["layout"]
    if layout["micro_batch_size"] == 8 and layout["tp"] == 1:
        return Outcome.OOM_CUDA, None
    return Outcome.OK, 3000.0 + 1000 * layout["micro_batch_size"] - 400 * layout["tp"] - 50 * layout["zero"]


def ended(planned, at, attempt=1, truth=None, took=60):
    """The attempt's record. ``truth``: another (outcome, rate) than the cluster's."""
    outcome, rate = truth or outcome_of(planned)
    facts = {"node_names": ("a",), "started_at": at - took, "ended_at": at}
    return recorded(planned.run_id, outcome, at, attempt, rate=rate, **facts)


def next_on(width, runs, sweep_state, search):
    """What a pilot with so many free nodes takes next."""
    return choose(runs, sweep_state, width, 1e6, 60, search=search, names=[f"n{i}" for i in range(width)])


def live(runs, strategy, limits=None, widths=(1, 2, 4)):
    """Pilots of each width in turn, each to its end, as long as anything waits. (events, sweep state, search)"""
    sweep_state, events = SweepState(), []
    search = Search(runs, GPU, strategy, limits)
    for _ in range(20):
        before = len(events)
        for width in widths:
            mine = [planned for planned in runs if planned.nodes == width]
            pilot = Search(runs, GPU, strategy, limits)
            while mine and (choice := next_on(width, runs, sweep_state, pilot)) is not None:
                assert choice.planned.run_id not in {e.record.run_id for e in events}, "no run twice"
                assert waiting(asked_for(search, runs, sweep_state), sweep_state), (
                    "what a pilot begins, the launcher waits for"
                )
                events.append(ended(choice.planned, 60.0 * (len(events) + 1)))
                sweep_state.apply_all([events[-1]])
        if len(events) == before:
            break
    return events, sweep_state, search


@pytest.mark.parametrize("name", STRATEGY.table)
@pytest.mark.parametrize("limits", [{}, {"runs": 17}, {"share": 0.3}, {"node_hours": 0.5}, {"runs_per_cell": 5}])
def test_a_sweep_ends_exactly_when_its_pilots_find_nothing(name, limits):
    runs = runs_of()
    events, sweep_state, search = live(runs, name, limits)
    assert not waiting(asked_for(search, runs, sweep_state), sweep_state)
    out = search.skipped(sweep_state)
    begun = {event.record.run_id for event in events}
    assert begun | set(out) == {planned.run_id for planned in runs}
    assert not begun & set(out)
    found = Tally(runs, {}, serial=False).update(sweep_state).counts(out)
    assert sum(found.values()) == len(runs)
    assert "waiting" not in found
    if limits:
        assert len(begun) < len(runs)
        assert BY_BUDGET in out.values() or name in ("guided", "playbook")
    if name == "exhaustive" and not limits:
        assert not out


@pytest.mark.parametrize("limits", [{"runs": 17}, {"node_hours": 0.5}])
def test_a_budget_is_respected_and_shared_by_the_cells(limits):
    events, _, _ = live(runs_of(), "exhaustive", limits)
    widths = [json.loads(next(p.run_json for p in runs_of() if p.run_id == e.record.run_id))["nodes"] for e in events]
    if "runs" in limits:
        assert len(events) == 17
    else:
        assert 0.5 - 4 / 60 <= sum(widths) / 60 <= 0.5
    tried = [widths.count(width) for width in (1, 2, 4)]
    assert max(tried) - min(tried) <= 1, "the first pilots are narrow, and leave the wide ones their share"


@pytest.mark.parametrize("name", STRATEGY.table)
@pytest.mark.parametrize("seed", range(4))
def test_the_same_state_gives_the_same_decisions_in_any_order_of_events(name, seed):
    runs = runs_of()
    events, _, _ = live(runs, name, {"share": 0.6})
    generator, reported = random.Random(seed), []
    part = events[: generator.randrange(5, len(events))]
    for order in (part, generator.sample(part, len(part))):
        sweep_state, search = SweepState(), Search(runs, GPU, name, {"share": 0.6})
        for place, event in enumerate(order):
            sweep_state.apply_all([event])
            if (place + seed) % 3 == 0:
                search.skipped(sweep_state)
                next_on(4, runs, sweep_state, search)
        asked = [planned.run_id for planned in asked_for(search, runs, sweep_state)]
        chosen = [next_on(width, runs, sweep_state, search) for width in (1, 2, 4)]
        reported.append((asked, search.skipped(sweep_state), chosen, search.known.best.tolist()))
    assert reported[0] == reported[1]


def test_each_cell_is_asked_for_as_many_runs_as_are_left_of_its_own_share():
    runs = runs_of((1, 2))
    sweep_state, search = state_of(ended(runs[0], 60.0)), Search(runs, GPU, limits={"runs_per_cell": 3})
    assert asked_for(search, runs, sweep_state) == runs[:6], "one began: two of its cell, and three of the other"


def test_a_rerun_takes_back_what_its_failure_taught():
    runs = runs_of()
    victim = next(p for p in runs if outcome_of(p)[0] is Outcome.OOM_CUDA)
    sweep_state, search = SweepState(), Search(runs, GPU, "prune")
    static = dict(search.skipped(sweep_state))
    sweep_state.apply_all([ended(victim, 60.0)])
    assert set(search.skipped(sweep_state)) > set(static)
    sweep_state.apply_all([RerunRequested(time=61.0, run_id=victim.run_id, after=1)])
    sweep_state.apply_all([ended(victim, 180.0, attempt=2, truth=(Outcome.OK, 5000.0))])
    assert search.skipped(sweep_state) == static
    fresh = Search(runs, GPU, "prune")
    assert fresh.skipped(sweep_state) == static
    assert fresh.known.best.tolist() == search.known.best.tolist()


def test_a_retry_is_requested_though_the_budget_is_spent():
    runs = runs_of((1,))
    sweep_state, search = SweepState(), Search(runs, GPU, "exhaustive", {"runs": 1})
    sweep_state.apply_all([ended(runs[0], 60.0, truth=(Outcome.NODE_FAIL, None))])
    assert [(c.planned.run_id, c.attempt) for c in waiting(asked_for(search, runs, sweep_state), sweep_state)] == [
        (runs[0].run_id, 2)
    ]
    assert next_on(1, runs, sweep_state, search).attempt == 2
    assert set(search.skipped(sweep_state).values()) == {BY_BUDGET}


def test_the_plan_decides_on_a_pipeline_of_few_micro_batches():
    """Its workload may have a rule of its own: what was planned is begun."""
    events, _, _ = live([made_planned(0, tp=2, pp=4, gas=2, workload="megatron")], "prune", widths=(1,))
    assert len(events) == 1


def test_another_sweep_state_is_read_from_its_beginning():
    runs = runs_of((1,))
    first, second = (state_of(*(ended(planned, 60.0) for planned in some)) for some in (runs[:3], runs[5:6]))
    search = Search(runs, GPU)
    assert search.update(first).begun.nonzero()[0].tolist() == [0, 1, 2]
    assert search.update(second).begun.nonzero()[0].tolist() == [5]
    known = search.update(first)
    assert known.begun.nonzero()[0].tolist() == [0, 1, 2]
    first.apply_all([ended(runs[4], 120.0)])
    assert search.update(first) is known, "of the same state only what is new is read"
    assert known.begun.nonzero()[0].tolist() == [0, 1, 2, 4]


@pytest.mark.parametrize(("seconds", "waits"), [(59, 0), (60, 6), (119, 6)])
def test_before_anything_began_the_whole_wall_time_is_left(seconds, waits):
    """Each run is expected to take a minute."""
    runs = runs_of((1,))[:6]
    search = Search(runs, GPU, limits={"wall_time": seconds})
    assert len(asked_for(search, runs, SweepState())) == waits


def test_a_run_that_has_not_ended_counts_with_its_expected_duration():
    runs = runs_of((1,))[:6]
    sweep_state = state_of(ended(runs[0], 60.0), ended(runs[1], 90.0))
    search = Search(runs, GPU, limits={"wall_time": 150.0})
    assert [run.run_id for run in asked_for(search, runs, sweep_state)] == [run.run_id for run in runs], (
        "90 s and a minute"
    )
    sweep_state.apply_all([ended(runs[2], 91.0)])
    assert [run.run_id for run in asked_for(search, runs, sweep_state)] == [run.run_id for run in runs[:3]]


@pytest.mark.parametrize(("took", "further"), [(10, 1), (16, 0), (60, 0)])
def test_a_run_that_ended_counts_with_the_time_that_it_took(took, further):
    """Of 75 node seconds in all: a further run of an expected minute fits after 10 s, and not after 16."""
    runs = runs_of((1,))[:6]
    sweep_state = state_of(ended(runs[0], 60.0, took=took))
    search = Search(runs, GPU, limits={"node_hours": 75.0 / 3600})
    left = [run.run_id for run in asked_for(search, runs, sweep_state)]
    assert left[0] == runs[0].run_id, "it began"
    assert (next(iter(search.choices(sweep_state, 1, frozenset())), None) is not None) is bool(further)


def test_one_run_at_a_time_takes_the_cell_with_the_fewest_runs_and_retries_last():
    runs = runs_of((1, 2))
    narrow, wide = ([planned for planned in runs if planned.nodes == nodes] for nodes in (1, 2))
    done = [ended(planned, 60.0) for planned in (*wide[1:4], narrow[0])]
    state = state_of(*done, ended(narrow[1], 60.0, truth=(Outcome.LOST, None)))
    search = Search(runs, GPU)

    def chosen(**how):
        return [(runs[place].nodes, attempt) for place, attempt in search.choices(state, 2, frozenset(), **how)]

    assert chosen() == [(2, 1), (1, 1), (1, 2)], "the widest first"
    assert chosen(in_turn=True) == [(1, 1), (2, 1), (1, 2)]
    first = Search(runs, GPU).choices(SweepState(), 2, frozenset(), in_turn=True)
    assert [place for place, _ in first] == [0, 1], "the plan's order where cells have as many"
    state.apply_all([ended(narrow[2], 60.0)])
    state.apply_all([ended(narrow[3], 60.0)])
    assert chosen(in_turn=True) == [(2, 1), (1, 1), (1, 2)]


def test_a_run_that_would_end_just_in_time_begins_unless_the_sweep_is_cancelled():
    runs = runs_of((1,))[:3]
    search = Search(runs, GPU)
    for left_s, begins in ((59.9, False), (60.0, True)):
        choice = choose(runs, SweepState(), 1, left_s, 60.0, search=search, names=["n1"])
        assert (choice is not None) is begins
    cancelled = state_of(CancelRequested(time=1.0))
    assert choose(runs, cancelled, 1, 1e6, 60.0, search=search, names=["n1"]) is None


@pytest.mark.parametrize(("repeats", "began"), [(1, 2), (2, 4)])
def test_a_share_of_all_runs_is_of_those_that_are_no_repeats_of_top_configurations(repeats, began):
    """Four configurations and each once more: a half is two, or four where the first repeats are the grid's own."""
    given = enumerate(product((0, 1), (1, 2, 4, 8)))
    runs = [made_planned(at, mbs=mbs, repeat=again) for at, (again, mbs) in given]
    search = Search(runs, GPU, limits={"share": 0.5, "repeats": repeats})
    assert search._budget.runs == began
