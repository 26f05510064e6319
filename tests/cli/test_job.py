"""The objective of a whole job: `best --objective job`, and `size` with failures."""

import pytest

import analysis
from sweep.outcomes import Outcome
from sweep.physics.job import FAILURES_PER_GPU_DAY, SECONDS_PER_DAY, Job
from sweep.records.collect import write_results
from tests.support.made_records import made_measurement, made_record, made_run


def wrote(times, stall_s, *, first_s=10.0, graphs=None, kind="sync", **run):
    """The record of a run on 512 ranks that wrote a checkpoint; ``graphs`` were compiled in it."""
    run = made_run(nodes=64, gpus_per_node=8, dp=512, params={"checkpoint": kind}, **run)
    extra = {"checkpoint_stall_s": stall_s, "checkpoint_slowdown": 0.0, "checkpoint_durable_s": stall_s}
    extra["graphs_compiled"] = graphs
    measured = made_measurement(*times, peak_allocated_bytes=2**30, extra={**extra, "checkpoint_restore_s": 30.0},
                                phases_s={"imports": 5.0})  # fmt: skip
    return made_record(run, measurements=[measured] * run.gpus, start_s=60.0, first_iteration_s=first_s)


@pytest.fixture
def results(tmp_path):
    """The fastest step waits 30 min at a checkpoint, that of ZeRO 1 for 5 s; a third wrote none."""
    none = made_record(made_run(nodes=64, gpus_per_node=8, dp=512, zero=3), (0.5, 0.5, 0.5))
    write_results(
        tmp_path / "r.parquet", [wrote((1.0, 1.0, 1.0), 1800.0), wrote((1.05, 1.05, 1.05), 5.0, zero=1), none]
    )
    return tmp_path / "r.parquet"


def expected(row, step_s, restart_s):
    """The job of a row, and the tokens that it counts in a GPU's day."""
    job = Job(
        step_s=step_s, gpus=512, stall_s=5.0, slowdown=0.0, durable_s=5.0, restart_s=restart_s,
        failures_per_gpu_day=FAILURES_PER_GPU_DAY,
    )  # fmt: skip
    return job, pytest.approx(row["tokens_per_second_per_gpu"] * SECONDS_PER_DAY * float(job.shares[0]))


def test_a_job_is_ranked_by_what_counts_of_its_gpus_time(results, command):
    (row,) = command.json("best", results, "--objective", "job")
    assert row["zero"] == 1
    job, tokens = expected(row, step_s=1.05, restart_s=105.0)
    assert row["job_tokens_per_gpu_day"] == tokens
    notes = " ".join(row["notes"])
    interval_s = float(job.interval_s)
    assert f"a checkpoint each {interval_s / 1.05:,.0f} steps ({interval_s / 60:.3g} min); " in notes
    assert "in the cache" not in notes
    assert "the fastest step is that of" in notes
    assert command.json("best", results, "--objective", "step")[0]["zero"] == 3


def test_a_restart_takes_as_long_as_a_cold_start(tmp_path, command):
    """The longest of a configuration's runs; where a run of the same layout had to compile nothing, that is said."""
    runs = [wrote((1.0, 1.0, 1.0), 5.0, first_s=s, graphs=4, repeat=at) for at, s in enumerate([60, 80])]
    runs += [
        wrote((1.2, 1.2, 1.2), 5.0, first_s=8.0, graphs=0, kind="async"),
        wrote((1.3, 1.3, 1.3), 5.0, graphs=4, zero=1),
    ]
    write_results(tmp_path / "r.parquet", runs)
    (row,) = command.json("best", tmp_path / "r.parquet", "--objective", "job")
    text = "a cold start takes 145 s (imports 5, ranks and model 60, first step 80), 73 s where all compiled code"
    assert text in " ".join(row["notes"])
    assert row["job_tokens_per_gpu_day"] == expected(row, step_s=1.0, restart_s=175.0)[1]


@pytest.mark.parametrize(("outcome", "text"), [
    (Outcome.NODE_FAIL, "0.05 failures per GPU-day (this sweep's: 10 in 200 GPU-days, so 0.0271 to 0.0848)"),
    (Outcome.PYTHON_EXCEPTION, "0.000474 failures per GPU-day (published, of Llama 3"),
])  # fmt: skip
def test_a_sweeps_own_failures_count_where_they_say_more(tmp_path, command, outcome, text):
    failed, ran = made_run(nodes=1, gpus_per_node=2, zero=3), {"outcome": outcome, "total_s": 10 * SECONDS_PER_DAY}
    ends = [made_record(failed, attempt=at, **ran) for at in range(1, 11)]
    write_results(tmp_path / "r.parquet", [wrote((1.0, 1.0, 1.0), 5.0), *ends])
    ok = "tokens_per_second > 0"
    for words in ((), ("--filter", ok)):  # which selects none of the failures
        (row,) = command.json("best", tmp_path / "r.parquet", "--objective", "job", *words)
        assert f"a job with {text}" in " ".join(row["notes"])
    drawn = analysis.cells(analysis.load(tmp_path / "r.parquet"), metric="job_tokens_per_gpu_day", expression=ok)
    assert drawn["value"].max() == pytest.approx(row["job_tokens_per_gpu_day"])


def test_without_a_checkpoint_the_remedy_is_to_measure_one(tmp_path, command):
    write_results(tmp_path / "r.parquet", [made_record()])
    err = command.refused("best", tmp_path / "r.parquet", "--objective", "job")
    assert "checkpoint: async" in err


def test_a_training_run_is_sized_with_its_failures(tmp_path, command):
    wide = wrote((1.0, 1.0, 1.0), 60.0)
    narrow = made_record(made_run(nodes=1, gpus_per_node=8, dp=8, grad_accum=256), (60.0, 60.0, 60.0))
    write_results(tmp_path / "r.parquet", [wide, narrow])
    argv = ("size", "--model", "1B", "--tokens", "1T", "--gpus", 512, "--from", tmp_path / "r.parquet")
    found = command.json(*argv)
    failing = found["with_failures"]
    assert failing["days"] == pytest.approx(found["days"] / failing["training_share"])
    assert found["days"] < failing["days_low"] < failing["days"] < failing["days_high"]
    assert "With 0.000474 failures per GPU-day (published, of Llama 3's training) and a checkpoint" in command(*argv)[1]
