"""Runs of several widths side by side in one allocation, on a real Slurm cluster."""

import json

import pytest

from benchmarks.rehearsal import over_lower_bound
from tests.support import driving

pytestmark = pytest.mark.slurm


def measure(tmp_path, cluster, step_s, isolate=False):
    """The attempts' records of a sweep in one pilot of 8 nodes."""
    keys = {"nodes": [1, 2, 4, 8], "global_batch_tolerance": 0.5, "iterations": 5, "repeats": 2, "isolate": isolate}
    keys |= {**driving.ONE_LAYOUT, "params": {"step_s": step_s}}
    grid = driving.simulated({"poll_interval_s": 1, "max_pilots": 1}, **keys)
    driving.launched(tmp_path, grid, executor="slurm", env=cluster.env)
    return driving.assert_each_run_measured_once(tmp_path / "s")


def overlap(a, b):
    return a["started_at"] < b["ended_at"] and b["started_at"] < a["ended_at"]


def concurrent_with(record):
    return set(json.loads(record["extra_json"]).get("concurrent_with", ()))


def name(record):
    return f"{record['run_id']}.{record['attempt']}"


def test_narrower_runs_fill_the_free_nodes_of_a_wider_pilot(tmp_path, slurm_cluster):
    records = measure(tmp_path, slurm_cluster, step_s=0.6)
    assert len(records) == 8
    assert len({record["job_id"] for record in records}) == 1, "one allocation runs all widths"
    for record in records:
        others = [other for other in records if other is not record and overlap(record, other)]
        assert not any(set(record["node_names"]) & set(other["node_names"]) for other in others), "no node has two"
        surely = {
            name(o)
            for o in others
            if min(o["ended_at"], record["ended_at"]) - max(o["started_at"], record["started_at"]) > 0.5
        }
        assert surely <= concurrent_with(record), "the record lists concurrent runs"
    starts = {width: min(r["started_at"] for r in records if r["nodes"] == width) for width in (1, 2, 4, 8)}
    assert sorted(starts, key=starts.__getitem__) == [8, 4, 2, 1], "the widest first"
    (over,) = over_lower_bound(records).values()
    print(f"{over:.3f} times the minimum")
    assert over < 1.15, "no gap that a waiting run could fill"


def test_an_isolated_run_has_the_fabric_exclusively(tmp_path, slurm_cluster):
    records = measure(tmp_path, slurm_cluster, step_s=0.2, isolate=True)
    wide = [record for record in records if record["nodes"] > 1]
    assert not any(overlap(a, b) for a in wide for b in wide if a is not b)
    assert any(overlap(a, b) for a in wide for b in records if b["nodes"] == 1), "runs within a node do not disturb"
