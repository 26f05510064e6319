"""What a pilot takes next as a sweep goes on: others' claims, reruns, out-of-memory, measured peaks."""

import json
from dataclasses import replace

import numpy as np
import pytest

from sweep.inputs.topology import Spot
from sweep.physics.hardware import GPUS
from sweep.planning.runs import PlannedRun
from sweep.plugins import STRATEGY
from sweep.search.placing import FLAT, Tree
from sweep.search.search import BY_STRATEGY, Search, choose, waiting
from sweep.state.events import RerunRequested
from sweep.state.state import SweepState
from tests.support.configurations import run
from tests.support.made_events import planned, recorded, state_of


def next_on(width, runs, sweep_state, search, taken=frozenset()):
    """What a pilot with so many free nodes takes next."""
    return choose(runs, sweep_state, width, 100, 10, taken, search=search, names=[f"n{i}" for i in range(width)])


def test_a_search_in_the_plans_order_takes_the_first_of_the_widest_that_wait():
    runs = [planned(i, None, nodes=1 + i % 2, env_number=i) for i in range(12)]
    sweep_state, search = SweepState(), Search(runs)
    generator = np.random.default_rng(0)
    for _ in range(40):
        width = int(generator.integers(1, 3))
        fitting = [choice for choice in waiting(runs, sweep_state) if choice.planned.nodes <= width]
        found = next_on(width, runs, sweep_state, search)
        expected = max(fitting, key=lambda choice: choice.planned.nodes, default=None)
        assert (found and replace(found, nodes=())) == expected
        if found is not None:
            outcome = ["ok", "node_fail", "oom_cuda", "nccl_timeout"][int(generator.integers(4))]
            sweep_state.apply_all([recorded(found.planned.run_id, outcome, attempt=found.attempt)])
    assert next_on(1, runs, sweep_state, search) is None


def test_anothers_claim_and_a_rerun_reach_the_search():
    runs = [planned(i, None, env_number=i) for i in range(3)]
    sweep_state, search = SweepState(), Search(runs)
    taken = frozenset({(runs[0].run_id, 1), ("run-of-another-plan", 1)})
    assert next_on(1, runs, sweep_state, search, taken).planned is runs[1]
    for made in runs:
        sweep_state.apply_all([recorded(made.run_id, rate=5.0)])
    assert next_on(1, runs, sweep_state, search) is None
    sweep_state.apply_all([RerunRequested(time=1.0, run_id=runs[2].run_id, after=1)])
    again = next_on(1, runs, sweep_state, search)
    assert (again.planned, again.attempt) == (runs[2], 2)


PAIR = Tree({node: Spot(domain) for node, domain in (("a", "d"), ("z", "d"), ("b", None), ("c", None))})


@pytest.mark.parametrize(("names", "same_nodes", "tree", "on"), [
    ("zbc", False, FLAT, "bc"), ("zab", False, FLAT, None), ("zab", True, FLAT, "zb"), ("zab", True, PAIR, "za"),
    ("azbc", True, PAIR, "bc"),
])  # fmt: skip
def test_a_retry_takes_nodes_where_it_failed_only_if_there_are_too_few_others_and_never_will_be(
    names, same_nodes, tree, on
):
    runs = [planned(0, None, nodes=2)]
    state, search = state_of(recorded(runs[0].run_id, "node_fail", node_names=("a", "z"))), Search(runs)
    found = choose(runs, state, 4, 100, 10, search=search, names=list(names), same_nodes=same_nodes, tree=tree)
    assert (found and (found.attempt, "".join(found.nodes))) == (on and (2, on))


def test_a_run_that_never_began_is_no_retry_though_its_rerun_was_asked_for():
    runs = [planned(place, None, mbs=mbs) for place, mbs in enumerate((4, 8))]
    request = RerunRequested(time=1.0, run_id=runs[1].run_id, after=0)
    sweep_state = state_of(recorded(runs[0].run_id, "oom_cuda"), request)
    search = Search(runs, GPUS["h100"], "prune")
    assert next_on(1, runs, sweep_state, search) is None
    assert search.skipped(sweep_state) == {runs[1].run_id: BY_STRATEGY}


@pytest.mark.parametrize("name", STRATEGY.table)
def test_a_plan_without_runs_and_a_workload_without_a_model(name):
    assert next_on(1, [], SweepState(), Search([], None, name)) is None
    made = [{**run(gas=gas, workload="theirs"), "shape": {}} for gas in (1, 2)]
    runs = [PlannedRun(f"run-{i:016x}", "ring", 1, None, json.dumps(values)) for i, values in enumerate(made)]
    sweep_state, search, asked = SweepState(), Search(runs, None, name), set()
    while (choice := next_on(1, runs, sweep_state, search)) is not None:
        asked.add(choice.planned.run_id)
        sweep_state.apply_all([recorded(choice.planned.run_id, rate=100.0)])
    assert len(asked) == 2


@pytest.mark.parametrize(("share", "skipped"), [(1.95, [5]), (2.6, [])], ids=["below", "above the memory"])
def test_measured_peaks_rule_out_what_the_memory_model_thought_would_fit(share, skipped):
    """Unless they are above the stated memory: what worked with that much refutes it."""
    layout = {"dp": 4, "tp": 2, "gas": 16, "workload": "nanotron"}
    runs = [planned(place, None, mbs=mbs, **layout) for place, mbs in enumerate((1, 2, 3, 4, 5, 8))]
    sweep_state, search = SweepState(), Search(runs, GPUS["h100"], "prune")
    use = search.known.candidates.memory_use
    assert not search.skipped(sweep_state)
    for place in range(4):
        peak_bytes = use[place] * 85e9 * share
        sweep_state.apply_all([recorded(runs[place].run_id, rate=1.0, peak_memory_bytes=peak_bytes)])
    assert search.skipped(sweep_state) == {runs[place].run_id: BY_STRATEGY for place in skipped}
