"""Strategies, budgets, fits and the search that follows a sweep: on synthetic clusters with known rates."""

import json
from dataclasses import replace

import numpy as np
import pytest

from sweep.errors import SweepError
from sweep.outcomes import Outcome
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS, Gpu
from sweep.physics.profiles import PROFILES
from sweep.physics.step_time import PARTS, step_time_s
from sweep.plan.runs import PlannedRun
from sweep.plugins import STRATEGIES
from sweep.search.budget import Budget
from sweep.search.candidates import from_configurations
from sweep.search.guided import Guided
from sweep.search.observations import Known
from sweep.search.replay import RecordedRun, promising_order, replay, report
from sweep.search.search import BY_STRATEGY, Search, choose, waiting
from sweep.search.step_time_model import probability_above
from sweep.search.strategies import strategy_named
from sweep.state.events import Recorded, RecordFacts, RerunRequested
from sweep.state.state import SweepState
from tests.support.configurations import run

LAYOUTS = [
    (tp, pp, mbs, zero, nodes)
    for nodes in (1, 4)
    for tp in (1, 2, 4, 8)
    for pp in (1, 2)
    for mbs in (1, 2, 4, 8)
    for zero in (0, 1)
]


def truth(seed=0, workload="somebody"):
    """A cluster on which every part of a step is off by a factor of its own, with noise of 3 %."""
    generator = np.random.default_rng(seed)
    given = []
    for tp, pp, mbs, zero, nodes in LAYOUTS:
        dp = nodes * 8 // (tp * pp)
        if dp and 256 % (dp * mbs) == 0:
            made = run(dp=dp, tp=tp, pp=pp, mbs=mbs, gas=256 // (dp * mbs), zero=zero, workload=workload)
            given.append({**made, "nodes": nodes})
    ids = [f"run-{number:016x}" for number in generator.permutation(len(given))]
    first = from_configurations(ids, given, GPUS["h100"])
    order = promising_order(first)
    found = from_configurations([ids[i] for i in order], [given[i] for i in order], GPUS["h100"])
    seconds = found.layouts.parts @ np.exp(generator.normal(0, 0.8, len(PARTS)))
    rates = np.exp(found.log_tokens_per_gpu - np.log(seconds) + generator.normal(0, 0.03, len(found)))
    failed = generator.random(len(found)) < 0.15
    outcomes = tuple(Outcome.UNKNOWN if bad else Outcome.OK for bad in failed)
    return RecordedRun(found, outcomes, np.where(failed, np.nan, rates), np.full(len(found), np.nan))


def test_the_search_starts_from_the_step_time_model_of_each_runs_trainer():
    given = [run(mbs=mbs, workload=workload) for workload in ("nanotron", "megatron", "somebody") for mbs in (1, 2)]
    ids = [f"run-{number:016x}" for number in range(len(given))]
    found = from_configurations(ids, given[::-1], GPUS["h100"])
    for place, made in enumerate(given[::-1]):
        columns = {**made["layout"], **made["shape"], "sequence_length": made["sequence_length"], "gpus_per_node": 8}
        profile = PROFILES.get(made["workload"], PROFILES["ours"])
        alone = step_time_s({**columns, "dtype": made["dtype"]}, GPUS["h100"], profile)
        assert found.layouts.parts[place].sum() == pytest.approx(float(alone)), made["workload"]


def test_unknown_hardware_counts_as_nominal():
    nominal = Gpu(name="n", peaks_flops={"bf16": 1e14}, memory_bytes_per_s=1e12, link_bytes_per_s=4e11)
    columns = MODELS["8B"].as_dict() | {"sequence_length": 4096, "gpus_per_node": 8, "nodes": 2, "dtype": "bf16"}
    columns |= {"dp": 2, "tp": 4, "pp": 2, "cp": 1, "zero": 1, "grad_accum": 8, "micro_batch_size": 1}
    columns |= {"recompute": "none", "pp_schedule": "1f1b"}
    assert float(step_time_s(columns, Gpu(name="?"))) == float(step_time_s(columns, nominal))


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_asks_for_each_run_once_at_most_and_ends(name):
    recorded = truth()
    done = replay(recorded, strategy_named(name), Budget())
    assert len(set(done.order)) == len(done.order) <= len(recorded.candidates)
    if name in ("exhaustive", "random"):
        assert len(done.order) == len(recorded.candidates)
        assert report(done)["overall"]["worst_regret"] == 0


def test_an_unknown_strategy_is_named_with_the_choices():
    with pytest.raises(SweepError, match=r"guidedd.*did you mean guided"):
        strategy_named("guidedd")
    with pytest.raises(SweepError, match="choose from: exhaustive, guided, playbook, prune, random"):
        strategy_named("xyz")


@pytest.mark.parametrize("seed", range(4))
def test_guided_finds_the_best_with_a_fifth_of_the_runs_on_clusters_that_physics_does_not_know(seed):
    recorded = truth(seed)
    budget = Budget(runs=len(recorded.candidates) // 5)
    guided = report(replay(recorded, Guided(), budget))["overall"]
    by_chance = report(replay(recorded, strategy_named("random"), budget))["overall"]
    assert guided["mean_regret"] <= 0.03
    assert guided["mean_regret"] <= by_chance["mean_regret"]


def test_guided_stops_every_cell_when_no_run_left_is_likely_to_be_better():
    recorded = truth(1)
    known = Known(recorded.candidates)
    for place in replay(recorded, Guided(), Budget()).order:
        rate = recorded.tokens_per_second_per_gpu[place]
        known.end(place, recorded.outcomes[place], None if np.isnan(rate) else rate)
    assert known.begun.sum() < len(recorded.candidates)
    assert len(known.candidates.cell_names) == 2
    for cell, _ in enumerate(known.candidates.cell_names):
        left = np.flatnonzero(~known.begun & ~known.infeasible & (known.candidates.cells == cell))
        assert (Guided().chance(known, left, cell) <= Guided().max_probability).all()


def test_a_strategy_sees_no_result_before_it_asks_for_it():
    recorded = truth()
    shuffled = RecordedRun(
        recorded.candidates,
        recorded.outcomes,
        recorded.tokens_per_second_per_gpu[::-1].copy(),
        recorded.peak_memory_bytes,
    )
    assert replay(recorded, Guided(), Budget()).order[0] == replay(shuffled, Guided(), Budget()).order[0]


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (Budget(runs=7), 7), (Budget(runs_per_cell=3), 6), (Budget(node_hours=10 / 60), None),
        (Budget(wall_s=300), 5), (Budget(node_hours_per_cell=4 / 60), 5),
    ],
)  # fmt: skip
def test_budgets(budget, expected):
    recorded = truth()
    order = replay(recorded, strategy_named("exhaustive"), budget).order
    hours = recorded.candidates.nodes[order].sum() / 60
    if expected is None:
        assert 6 / 60 < hours <= budget.node_hours + 1e-9
    else:
        assert len(order) == expected


def test_a_budget_must_be_positive_and_every_mistake_is_reported():
    with pytest.raises(SweepError) as error:
        Budget(runs=0, node_hours=-1)
    assert [mistake.path for mistake in error.value.mistakes] == ["budget.runs", "budget.node_hours"]


def test_finalists_are_repeated_and_others_are_not():
    given = [run(mbs=mbs, repeat=repeat) for mbs in (1, 2, 4, 8) for repeat in (0, 1)]
    found = from_configurations([f"run-{i:016x}" for i in range(8)], given, GPUS["h100"])
    rates = np.repeat([1000.0, 2000.0, 4000.0, 3970.0], 2)
    recorded = RecordedRun(found, (Outcome.OK,) * 8, rates, np.full(8, np.nan))
    order = replay(recorded, Guided(), Budget()).order
    repeated = {int(found.columns["micro_batch_size"][i]) for i in order if found.repeats[i]}
    assert repeated == {4, 8}


def test_the_chance_to_be_better():
    chances = probability_above(np.array([-10.0, 0.0, 10.0]), 0.1, 0.0)
    assert chances[1] == 0.5
    assert chances[0] < 1e-4
    assert chances[0] + chances[2] == pytest.approx(1)


def planned(place, nodes=1, mbs=1):
    made = {**run(mbs=mbs, env_number=place), "nodes": nodes}
    return PlannedRun(f"run-{place:016x}", "1B", nodes, None, json.dumps(made))


def record(sweep_state, run_id, outcome, attempt=1, rate=None, peak_bytes=None):
    facts = RecordFacts(
        run_id=run_id,
        attempt=attempt,
        pilot="p",
        outcome=Outcome(outcome),
        tokens_per_second_per_gpu=rate,
        peak_memory_bytes=peak_bytes,
    )
    sweep_state.apply(Recorded(time=0.0, record=facts))


def next_on(width, runs, sweep_state, search, taken=frozenset()):
    """What a pilot with so many free nodes takes next."""
    return choose(runs, sweep_state, width, 100, 10, taken, search=search, names=[f"n{i}" for i in range(width)])


def test_a_search_in_the_plans_order_takes_the_first_of_the_widest_that_wait():
    runs = [planned(i, nodes=1 + i % 2) for i in range(12)]
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
            record(sweep_state, found.planned.run_id, outcome, found.attempt)
    assert next_on(1, runs, sweep_state, search) is None


def test_anothers_claim_and_a_rerun_reach_the_search():
    runs = [planned(i) for i in range(3)]
    sweep_state, search = SweepState(), Search(runs)
    taken = frozenset({(runs[0].run_id, 1)})
    assert next_on(1, runs, sweep_state, search, taken).planned is runs[1]
    for made in runs:
        record(sweep_state, made.run_id, "ok", rate=5.0)
    assert next_on(1, runs, sweep_state, search) is None
    sweep_state.apply(RerunRequested(time=1.0, run_id=runs[2].run_id, after=1))
    again = next_on(1, runs, sweep_state, search)
    assert (again.planned, again.attempt) == (runs[2], 2)


def test_a_live_prune_skips_runs_that_need_more_than_one_that_ran_out_of_memory():
    runs = []
    for place, mbs in enumerate((4, 8, 2)):
        runs.append(PlannedRun(f"run-{place:016x}", "1B", 1, None, json.dumps(run(mbs=mbs))))
    sweep_state, search = SweepState(), Search(runs, GPUS["h100"], "prune")
    record(sweep_state, runs[0].run_id, "oom_cuda")
    assert next_on(1, runs, sweep_state, search).planned is runs[2]
    assert search.left_out(sweep_state) == {runs[1].run_id: BY_STRATEGY}


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_plan_without_runs_and_a_workload_without_a_model(name):
    assert next_on(1, [], SweepState(), Search([], None, name)) is None
    made = [{**run(gas=gas, workload="collectives"), "shape": {}} for gas in (1, 2)]
    runs = [PlannedRun(f"run-{i:016x}", "ring", 1, None, json.dumps(values)) for i, values in enumerate(made)]
    sweep_state, search, asked = SweepState(), Search(runs, None, name), set()
    while (choice := next_on(1, runs, sweep_state, search)) is not None:
        asked.add(choice.planned.run_id)
        record(sweep_state, choice.planned.run_id, "ok", rate=100.0)
    assert len(asked) == 2


def test_measured_peaks_rule_out_what_the_memory_model_thought_would_fit():
    runs = [
        PlannedRun(f"run-{i:016x}", "1B", 1, None, json.dumps(run(mbs=mbs, dp=4, tp=2, gas=16, workload="nanotron")))
        for i, mbs in enumerate((1, 2, 3, 4, 5, 8))
    ]
    sweep_state, search = SweepState(), Search(runs, GPUS["h100"], "prune")
    use = search.known.candidates.memory_use
    assert not search.left_out(sweep_state)
    for place in range(4):
        record(sweep_state, runs[place].run_id, "ok", rate=1.0, peak_bytes=use[place] * 85e9 * 2.6)
    assert search.left_out(sweep_state) == {runs[5].run_id: BY_STRATEGY}
