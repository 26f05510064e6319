"""Runs that have lost end early: all ranks after the same iteration, nothing left behind, and the answer the same."""

import json
import statistics

import pytest
import yaml

from tests.support import driving
from tests.support.paths import REPOSITORY
from tests.support.trainers.external import SHAPE, paced


def wait_for_records(directory, number):
    driving.wait_for(lambda: (directory / "journal").exists() and len(driving.records_of(directory)) >= number, 300)


def by_pace(directory):
    return {float(json.loads(record["params_json"])["a"]): record for record in driving.records_of(directory)}


def assert_stopped(record, best):
    assert (record["outcome"], record["stopped"]) == ("ok", "slow"), record["message"]
    about = json.loads(record["extra_json"])["stopped"]
    assert about["set_by"] == f"{best['run_id']}.1"
    assert about["factor"] >= 1.1
    assert about["bound_s"] == pytest.approx(about["factor"] * best["step_time_median_s"])
    assert about["iterations_timed"] < record["iterations"]
    assert len(record["step_times_s"]) == max(about["iterations_timed"], 1)
    assert f"it had lost to {best['run_id']}.1" in " ".join(record["notes"])


@pytest.mark.parametrize("prints", ["last", pytest.param("all", marks=pytest.mark.long)])
def test_all_ranks_of_a_foreign_trainer_stop_after_the_same_iteration(tmp_path, prints):
    """The larger micro-batch is expected to be faster, so it comes first."""
    grid = paced(["{{ 0.05 if micro_batch_size == 8 else 0.6 }}"], prints, micro_batch_size=[8, 1])
    grid["params"]["command"] = grid["params"]["command"].replace("{{ a }}", grid["params"].pop("a")[0])
    driving.launched(tmp_path, yaml.safe_dump(grid), cwd=REPOSITORY)
    found = {record["micro_batch_size"]: record for record in driving.records_of(tmp_path / "s")}
    assert found[8]["stopped"] is None
    assert len(found[8]["step_times_s"]) == 5
    assert_stopped(found[1], found[8])
    assert found[1]["step_time_median_s"] > 0.6
    assert len(found[1]["rank_step_time_median_s"]) == 4
    assert driving.wait_until_unmarked(tmp_path / "s", 10) == []
    (best,) = json.loads(driving.succeeds("best", tmp_path / "s", "--json").stdout)
    assert (best["micro_batch_size"], best["verdict"]) == (8, "leads")


@pytest.mark.long
@pytest.mark.slurm
@pytest.mark.timeout(900)
def test_on_slurm_with_a_foreign_trainer_killed_in_the_middle_and_resumed(tmp_path, slurm_cluster):
    paces = [0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5]
    grid, where = yaml.safe_dump(paced(paces, "all")), {"env": slurm_cluster.env, "cwd": REPOSITORY}
    launcher = driving.launching(tmp_path, grid, executor="slurm", **where)
    wait_for_records(tmp_path / "s", 3)
    launcher.kill()
    launcher.wait()
    slurm_cluster.cancel_all()
    driving.succeeds("resume", tmp_path / "s", env=slurm_cluster.env, cwd=REPOSITORY, timeout=600)
    found = by_pace(tmp_path / "s")
    assert set(found) == set(paces)
    full = {f"{record['run_id']}.1": record for record in found.values() if record["stopped"] is None}
    lost = [record for record in found.values() if record["stopped"] is not None]
    assert len(lost) >= 3
    assert found[0.1]["stopped"] is None
    for record in lost:
        assert_stopped(record, full[json.loads(record["extra_json"])["stopped"]["set_by"]])
    assert driving.wait_until_unmarked(tmp_path / "s", 20) == []
    slurm_cluster.wait_idle()
    assert slurm_cluster.job_processes() == []


BEST_S = 0.3
"""what the straggler of the best configuration sleeps in each step: far above what the small model computes, so that
the others' ratio to it holds on a machine with other load"""
FACTORS = (1, 1.6, 2, 2.4, 2.8, 3.2, 3.6, 4, 4.4, 4.8, 5.2, 5.6)
"""about 1.5 to 5 times slower"""


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_local_sweep_of_the_transformer_killed_in_the_middle_and_resumed(tmp_path):
    """24 runs: the best, and layouts that a straggler makes slower by 1.5 to 5 times."""
    late = [round(BEST_S * factor, 2) for factor in FACTORS]
    grid = {
        "name": "lost", "models": {"tiny": SHAPE}, "nodes": 1, "sequence_length": 64, "global_batch": 1024,
        "dtype": "fp32", "micro_batch_size": 8, "remeasure": 0, "zero": [0, 1], "strategy": "prune",
        "params": {"straggler_rank": 1, "straggler_s": late, "threads": 1, "cpu_memory": False},
        "site": {"gpu": "cpu", "gpus_per_node": 2, "poll_interval_s": 1},
    }  # fmt: skip
    winners = []
    for name, stop in (("with", 1.2), ("without", "off")):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({**grid, "stop_slow": stop}))
        words = ("launch", tmp_path / f"{name}.yaml", "--dir", tmp_path / name, "--executor", "local", "--yes")
        if name == "with":
            launcher = driving.start(*words)
            wait_for_records(tmp_path / "with", 8)
            for pid in [launcher.pid, *driving.leader_pids(tmp_path / "with")]:
                driving.kill(pid)
            launcher.wait()
            driving.succeeds("resume", tmp_path / "with", timeout=900)
        else:
            driving.succeeds(*words, timeout=900)
        (best,) = json.loads(driving.succeeds("best", tmp_path / name, "--json").stdout)
        winners.append(best["params"]["straggler_s"])
    assert winners == [BEST_S, BEST_S]
    driving.assert_each_run_measured_once(tmp_path / "with")
    records = [record for record in driving.records_of(tmp_path / "with") if record["outcome"] == "ok"]
    assert len(records) == 24
    full = [record for record in records if record["stopped"] is None]
    fastest = min(record["step_time_median_s"] for record in records)
    lost = [record for record in records if record["stopped"] is not None]
    assert len(lost) >= 12, [record["step_time_median_s"] for record in records]
    for record in lost:
        by = next(r for r in full if f"{r['run_id']}.1" == json.loads(record["extra_json"])["stopped"]["set_by"])
        assert_stopped(record, by)
        assert record["step_time_median_s"] > 1.1 * fastest
    assert driving.wait_until_unmarked(tmp_path / "with", 20) == []
    whole = statistics.fmean(record["total_s"] for record in driving.records_of(tmp_path / "without"))
    assert statistics.fmean(record["total_s"] for record in records) < whole
