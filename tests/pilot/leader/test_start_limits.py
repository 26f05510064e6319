"""Start limits from similar runs, as a table; and real sweeps in which they find a hang sooner."""

import asyncio
import dataclasses
from dataclasses import replace

import pytest

from sweep.contract import Layout, Phase, Run, Workload
from sweep.outcomes import Outcome
from sweep.pilot.leader.attempt import AttemptRunner
from sweep.pilot.leader.link import Link
from sweep.pilot.leader.start_limits import MeasuredStart, ObservedStarts, limits_from
from sweep.pilot.leader.watchdog import StartLimits, Watchdog
from sweep.planning.runs import PlannedRun
from sweep.state.events import Recorded, RecordFacts
from tests.support import driving
from tests.support.pilot_parts import LIMITS, Mute, played

GRID_LIMITS = replace(LIMITS, start_s=300, first_iteration_s=300)
PLACES = {0: "n1", 1: "n2"}


def planned(number=0, predicted_s=100.0, nodes=1, **changes):
    layout = Layout(dp=nodes * 2, micro_batch_size=1 + number)
    values = {"workload": "w", "model": "m", "shape": {}, "nodes": nodes, "gpus_per_node": 2, "sequence_length": 64}
    run = Run(**{**values, "layout": layout, **changes})
    return PlannedRun(run.run_id, run.model, nodes, predicted_s, run.canonical_json())


def record(run, start_s=4.0, first_iteration_s=10.0, attempt=1):
    facts = RecordFacts(
        run_id=run.run_id,
        attempt=attempt,
        pilot="p",
        outcome=Outcome.OK,
        start_s=start_s,
        first_iteration_s=first_iteration_s,
    )
    return Recorded(time=0.0, record=facts)


def observed_for(run, *records, attempt=1):
    """The start limits observed for `run` from (run, record's changes)."""
    starts = ObservedStarts([run, *(other for other, _ in records)])
    starts.apply_all(record(other, **changes) for other, changes in records)
    return starts.start_limits(run, attempt, GRID_LIMITS)


def three(first_iteration_s=10.0, **changes):
    return [(planned(number, **changes), {"first_iteration_s": first_iteration_s}) for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("longest", "allowed"), [((4.0, 10.0), (90, 90)), ((30.0, 40.0), (150, 200)), ((100.0, 70.0), (300, 300))]
)
def test_a_start_may_take_five_times_the_longest_between_a_floor_and_the_grids_limit(longest, allowed):
    similar = [MeasuredStart(1, 1.0, *longest), MeasuredStart(1, 1.0, 0.1, 0.1)]
    assert limits_from(similar, 1.0, GRID_LIMITS) == StartLimits(start_s=allowed[0], first_iteration_s=allowed[1])


def test_limits_below_the_floor_that_the_grid_sets_hold():
    short = replace(LIMITS, start_s=20, first_iteration_s=30)
    assert limits_from([MeasuredStart(1, 1.0, 1.0, 1.0)], 1.0, short) == StartLimits(start_s=20, first_iteration_s=30)


def test_a_run_with_more_work_is_given_more():
    similar = [MeasuredStart(1, 100.0, 4.0, 20.0)]
    assert limits_from(similar, 250.0, GRID_LIMITS).first_iteration_s == 250
    assert limits_from(similar, 50.0, GRID_LIMITS).first_iteration_s == 100


def test_three_runs_give_limits_unless_two_of_them_are_one_or_never_iterated_or_it_is_a_further_attempt():
    """A run wrongly taken for hung gets another chance."""
    assert observed_for(planned(), *three()) == StartLimits(start_s=90, first_iteration_s=90)
    assert observed_for(planned(), *three()[:2], three()[0]) is None
    assert observed_for(planned(), *three(first_iteration_s=None)) is None
    assert observed_for(planned(), *three(), attempt=2) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "other"},
        {"compile": True},
        {"sequence_length": 128},
        {"params": {"mode": "max-autotune"}},
        {"env": {"NCCL_DEBUG": "INFO"}},
    ],
)
def test_runs_that_build_or_compile_otherwise_are_not_similar(changes):
    assert observed_for(planned(), *three(**changes)) is None


@pytest.mark.parametrize(("nodes", "known"), [(1, False), (2, True), (4, True), (8, True)])
def test_much_narrower_runs_do_not_predict_the_rendezvous(nodes, known):
    assert (observed_for(planned(nodes=4), *three(nodes=nodes)) is not None) is known


def test_without_a_prediction_the_tokens_of_a_gpu_are_the_work():
    runs = [planned(number, predicted_s=None) for number in range(4)]
    starts = ObservedStarts(runs)
    starts.apply_all(record(run, first_iteration_s=40.0) for run in runs[:3])
    assert starts.start_limits(runs[3], 1, GRID_LIMITS).first_iteration_s == pytest.approx(300)
    assert starts.start_limits(runs[0], 1, GRID_LIMITS).first_iteration_s == pytest.approx(200)


def begun(start_limits):
    dog = Watchdog.over(2, GRID_LIMITS, 0.0)
    dog.begin(100.0, start_limits)
    return dog


def test_preloading_the_fork_server_is_no_part_of_an_observed_start():
    dog = begun(StartLimits(start_s=90, first_iteration_s=90))
    assert dog.verdict(189.9, PLACES) is None
    verdict = dog.verdict(190.0, PLACES)
    assert verdict.outcome is Outcome.HANG
    assert "from starts of similar runs" in verdict.text


def test_a_minute_of_compilation_is_tolerated_whatever_was_observed():
    dog = begun(limits_from([MeasuredStart(1, 1.0, 0.5, 0.5)], 1.0, GRID_LIMITS))
    for rank in (0, 1):
        dog.heartbeat(rank, Phase.FIRST_ITERATION, 0, None, 101.0)
    assert dog.verdict(161.0, PLACES) is None


@pytest.mark.parametrize("preloaded", [True, False])
def test_ranks_that_import_by_themselves_have_the_grids_limits(preloaded):
    """Ranks that never send a heartbeat: by which limit they are taken for hung."""

    async def scenario():
        link = Link("n1", Mute())
        limits, start_limits = (
            replace(LIMITS, start_s=0.4, first_iteration_s=0.4),
            StartLimits(start_s=0.1, first_iteration_s=0.1),
        )
        workload = Workload(name="w", main="none:main", axes={})
        runner = AttemptRunner("r.1", planned().run(), workload, [link], limits, 0, start_limits)
        return await played(runner, link, preloaded=preloaded)

    result = asyncio.run(scenario())
    assert result.diagnosis.outcome is Outcome.HANG
    assert ("from starts of similar runs" in result.message) is preloaded
    assert (result.times_s["total_s"] > 0.4) is not preloaded


def test_a_grid_of_runs_is_of_one_kind_but_for_its_parameters():
    run = planned().run()
    other = dataclasses.replace(run, layout=Layout(dp=1, tp=2), repeat=3)
    assert observed_for(PlannedRun(other.run_id, "m", 1, 100.0, other.canonical_json()), *three()) is not None


HANGS = """
name: starts
workload: simulated
models: [tiny-1M]
nodes: [1]
sequence_length: 64
global_batch: 4096
dtype: [fp32]
iterations: 3
warmup_iterations: 2
repeats: 8
seed: {seed}
timeouts: {{start: 150s, first_iteration: 150s, steady: 8s}}
params: {{step_s: 0.02, fault: hang, fault_probability: 0.2, fault_iteration: {iteration}, fault_rank: 1}}
site: {{gpu: cpu, gpus_per_node: 2, pilot_time: 60m}}
"""
WHERE_AND_SEED = ((-1, 3), (0, 9))
"""the iteration before which a run hangs, and a seed by which the first four runs do not, and one of the others does"""


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("iteration", "seed"), WHERE_AND_SEED)
def test_a_hang_in_a_start_is_found_sooner_after_some_runs(tmp_path, iteration, seed):
    driving.launched(tmp_path, HANGS.format(seed=seed, iteration=iteration), timeout=1100)
    records = driving.records_of(tmp_path / "s")
    hangs = [record for record in records if record["outcome"] == "hang"]
    assert [record["outcome"] for record in records[:4]] == ["ok"] * 4, "else nothing is records before the hang"
    by_attempt = {n: [r["total_s"] for r in hangs if r["attempt"] == n] for n in (1, 2)}
    assert by_attempt[1], "a run hangs"
    assert all(90 <= total_s < 90 + 15 for total_s in by_attempt[1]), by_attempt
    assert all(150 <= total_s < 150 + 15 for total_s in by_attempt[2]), "tried again under the grid's limits"
