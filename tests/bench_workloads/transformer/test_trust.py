"""Reliable measurements: a straggler is named, a disturbance changes nothing, another torch is reported.

Ranks are real torch processes; the records are those that a sweep stores.
"""

import json
from importlib.metadata import version

import pytest

from sweep.contract import Layout, Measurement, Run
from sweep.records.record import problems
from tests.support import driving
from tests.support.made_records import as_json, made_record
from tests.support.ranks.harness import DENSE, MOE, ForkServer, a_run
from tests.support.transformer.cases import case

pytestmark = pytest.mark.parallel
FEW_LAYERS = {"num_layers": 2}
TRIES = 3
"""a busy machine disturbs ranks by more than 20 ms; not three times in a row"""
LATE_S = 0.02

OTHER = "2.12.0"
"""than that of the ranks, which is 2.11 or 2.13"""


def record_of(fork_server: ForkServer, run: Run) -> dict:
    """The record of an attempt by real ranks."""
    given = [rank.measurement for rank in fork_server.attempt(run)]
    measurements = [Measurement(**{k: v for k, v in m.items() if k != "kind"}) for m in given]
    record = made_record(run, measurements=measurements, gpu="cpu")
    assert problems(record) == []
    assert record.outcome == "ok", record.message
    return as_json(record)


def with_straggler(fork_server: ForkServer, words: str, rank: int, late_s: float = LATE_S) -> dict:
    shape = (MOE if "ep" in words else DENSE) | FEW_LAYERS
    params = {"straggler_rank": rank, "straggler_s": late_s}
    return record_of(fork_server, a_run(case(words).layout, shape=shape, iterations=9, params=params))


@pytest.mark.parametrize(
    "words",
    [
        "dp=2 zero=0",
        "dp=2 zero=3",
        "pp=2",
        "tp=2",
        *(pytest.param(words, marks=pytest.mark.long) for words in ("cp=2", "dp=2 ep=2", "dp=4 zero=2")),
    ],
)
def test_the_record_names_the_rank_that_is_20_ms_late_in_each_step(fork_server: ForkServer, words):
    """Whichever rank it is: all ranks' steps take as long as its own, and only that rank never waits.

    Where a busy machine stretches a step far beyond 20 ms, the rank is late by a step, to be identifiable. A step of
    tensor parallelism is long by itself on CPU.
    """
    for rank in (0, case(words).layout.gpus - 1):
        late_s, named = 0.3 if "tp" in words else LATE_S, []
        while rank not in named and len(named) < TRIES:
            record = with_straggler(fork_server, words, rank, late_s)
            named.append(record["slow_rank"])
            late_s = max(late_s, record["step_time_median_s"])
        assert named[-1] == rank, f"rank {rank} sleeps, named were {named}"


def test_no_rank_is_named_where_none_is_late(fork_server: ForkServer):
    """None is, or on a busy machine varying ones: never always the same."""
    named = [with_straggler(fork_server, "dp=2 zero=0", -1)["slow_rank"]]
    while None not in named and len(set(named)) == 1 and len(named) < 3 * TRIES:
        named.append(with_straggler(fork_server, "dp=2 zero=0", -1)["slow_rank"])
    assert None in named or len(set(named)) > 1, f"always {named[0]}"


def test_a_rank_that_is_late_once_is_not_slow(fork_server: ForkServer):
    """One step of nine takes a second longer: neither the median nor the rank's own time does."""
    params = {"straggler_rank": 1, "straggler_s": 1.0, "straggler_iteration": 4}
    record = record_of(fork_server, a_run(Layout(dp=2), shape=DENSE | FEW_LAYERS, iterations=9, params=params))
    times = record["step_times_s"]
    assert times.index(max(times)) == 3, "one iteration of warm-up comes first"
    assert max(times) > 1.0 > record["step_time_median_s"]
    assert json.loads(record["extra_json"])["own_time_median_s"]["max"] < 0.5


def test_a_whole_sweep_names_the_straggler_and_reports_that_the_nodes_have_another_torch(tmp_path):
    """By the command line. The straggler is late by far more than a busy machine disturbs the other rank."""
    params = {"straggler_rank": 1, "straggler_s": 1.0, "cpu_memory": False, "threads": 1}
    keys = {"global_batch": 512, "dp": 2, "zero": 0, "micro_batch_size": 2, "iterations": 9, "remeasure": 0}
    grid = driving.simulated({"torch_version": OTHER}, **keys, workload="transformer", params=params)
    driving.launched(tmp_path, grid)
    (record,) = driving.assert_each_run_measured_once(tmp_path / "s")
    assert record["slow_rank"] == 1
    assert record["suspect"]
    wanted = f"the site states torch {OTHER}, the ranks run {version('torch')}"
    assert any(wanted in note for note in record["notes"])
