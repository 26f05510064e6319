"""All kinds of faults at once, while a sweep runs on real Slurm with its launcher on one of two login hosts.

At the end each run is measured once or failed for its own reason, every attempt has one record, no node is accused that
nothing happened to, and no process or job is left.
"""

import json
import os
import random
import time
from collections import Counter, defaultdict

import pyarrow.parquet as pq
import pytest

from sweep.outcomes import Outcome
from sweep.state.events import NodeBad
from sweep.state.retries import RULES
from sweep.store.sweep import open_sweep
from tests.support import driving
from tests.support.chaos import FAULTS, LIES_ONLY, QUICK, Chaos, stale_flag
from tests.support.cut_network import network, second_network
from tests.support.faults.simulated import EXPECTED
from tests.support.login_host import LoginHost
from tests.support.lying_slurm import LyingSlurm
from tests.support.paths import REPOSITORY
from tests.support.slurm.cluster import Cluster

__all__ = ["network", "second_network"]
pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

FROM_OUTSIDE = {"lost", "preempted", "node_fail", "network", "unknown"}
"""how an attempt may end that a fault of the cluster hit"""


TIMEOUTS = {"start": "60s", "first_iteration": "60s", "steady": "8s"}
STALE = {"PYTHONPATH": f"{REPOSITORY / 'tests' / 'support' / 'stale_files'}:{REPOSITORY}"}


def records_of(directory):
    """run_id -> its records by attempt; a line that was written twice counts once."""
    found = defaultdict(dict)
    for record in driving.records_of(directory):
        before = found[record["run_id"]].setdefault(record["attempt"], record)
        assert before == record or "lost" in (before["outcome"], record["outcome"]), (before, record)
        if before["outcome"] == "lost":  # a late record supersedes it
            found[record["run_id"]][record["attempt"]] = record
    return found


def surplus_of(directory):
    """(run_id, attempt) -> whether the table says that it came after one that counts; each run has one that counts."""
    names = ["run_id", "attempt", "final", "surplus"]
    rows = list(zip(*pq.read_table(directory / "results.parquet", columns=names).to_pydict().values(), strict=True))
    assert set(Counter(run_id for run_id, _, final, _ in rows if final).values()) == {1}
    return {(run_id, attempt): surplus for run_id, attempt, _, surplus in rows}


def assert_each_run_ended_for_a_reason(directory, chaos):
    """Each run ended for its own reason, or was hit from outside more often than it may be."""
    runs = records_of(directory)
    assert set(runs) == {planned.run_id for planned in open_sweep(directory).runs}
    state = driving.state_of(directory)
    surplus = surplus_of(directory)
    for run_id, attempts in runs.items():
        outcomes = [attempts[number]["outcome"] for number in sorted(attempts)]
        fault = json.loads(attempts[1]["params_json"]).get("fault") or '""'
        expected = EXPECTED[fault]
        assert sorted(attempts) == list(range(1, len(attempts) + 1)), run_id
        assert set(outcomes) <= {expected} | FROM_OUTSIDE, (run_id, fault, outcomes)
        assert [surplus[run_id, number] for number in sorted(attempts) if outcomes[number - 1] == "ok"].count(
            False
        ) <= 1
        worn_out = Counter(outcomes)[outcomes[-1]] > RULES[Outcome(outcomes[-1])].retries
        assert expected in outcomes or worn_out, (run_id, fault, outcomes)
        if "unknown" in outcomes and expected != "unknown":
            assert run_id in chaos.killed_runs, (run_id, outcomes)
    assert not any(surplus.values()), surplus
    claims = {path.name for path in (directory / "claims").iterdir() if not path.name.startswith(".")}
    assert claims == {f"{run_id}.{attempt}" for run_id, attempts in runs.items() for attempt in attempts}
    assert not [pilot.name for pilot in state.pilots.values() if pilot.open]
    accused = {event.node for event in driving.events_of(directory, NodeBad)}
    assert accused <= chaos.hit_nodes, (accused, chaos.hit_nodes)
    return runs


def assert_nothing_left(directory, cluster):
    assert driving.wait_until_unmarked(directory) == []
    cluster.wait_idle(120)
    jobs = [job for job in cluster.squeue().values() if job["name"].startswith("chaos-")]
    assert not [job for job in jobs if job["state"] in ("PENDING", "RUNNING", "COMPLETING", "SUSPENDED")]
    names = [job["name"] for job in jobs]
    assert len(set(names)) == len(names), "a pilot was submitted twice"


def run_chaos(
    tmp_path, cluster, networks, seed, *, faults, seconds, limit_s, pauses_s, longest_s, late_s=20.0, env=None,
    nodes=(1, 2), repeats=1, steps=(0.2, 0.21), faults_of_runs=("exception",), pilot_time="10m", pilots,
):  # fmt: skip
    directory, began = tmp_path / "s", time.monotonic()
    prefix = networks[0].enter('test "$SLURMD_NODENAME" = n3')
    site = {"pilot_time": pilot_time, "poll_interval_s": 1, "max_pilots": pilots, "container_prefix": prefix}
    params = {"step_s": steps, "fault": "", "fault_rank": 1, "fault_iteration": 3, "fault_s": 600}
    keys = {**driving.ONE_LAYOUT, "global_batch_tolerance": 0.9, "iterations": 5, "warmup_iterations": 2}
    keys |= {"timeouts": TIMEOUTS, "params": {**params, "one_process_per_node": True}, "strategy": "exhaustive"}
    keys |= {"nodes": nodes, "repeats": repeats, "include": [{"fault": faults_of_runs, "step_s": 0.05}]}
    (tmp_path / "grid.yaml").write_text(driving.simulated(site, name="chaos", **keys))
    lying = LyingSlurm(tmp_path / "clients", cluster.env["PATH"])
    env = STALE | {"PATH": lying.path, "SWEEP_STALE": str(stale_flag(directory))} | (env or {})
    hosts = (LoginHost("login1", cluster, None, env), LoginHost("login2", cluster, networks[1], env))
    chance = random.Random(seed)
    chaos = Chaos(directory, cluster, networks[0], "n3", hosts, lying, chance, faults, longest_s, late_s)
    try:
        chaos.launch(tmp_path / "grid.yaml", seconds, limit_s, pauses_s)
    finally:
        chaos.end()
    runs = assert_each_run_ended_for_a_reason(directory, chaos)
    assert_nothing_left(directory, cluster)
    assert chaos.most_jobs <= pilots, "a pilot too many"
    outcomes = Counter(record["outcome"] for attempts in runs.values() for record in attempts.values())
    took = time.monotonic() - began
    print(f"seed {seed}: {len(runs)} runs, {sum(outcomes.values())} attempts {dict(outcomes)} in {took:.0f} s")
    print(f"faults: {dict(chaos.done.most_common())}")
    assert "Traceback" not in chaos.output(), chaos.output()[-6000:]
    return chaos


def test_a_scheduler_that_lies_and_files_that_blink(tmp_path, slurm_cluster, network, second_network):
    chaos = run_chaos(
        tmp_path, slurm_cluster, (network, second_network), 2,
        faults=LIES_ONLY, seconds=5, limit_s=120, pauses_s=(0.1, 0.5), longest_s=4.0, late_s=3.0, pilots=2,
    )  # fmt: skip
    assert chaos.done.total()


def test_a_short_chaos(tmp_path, slurm_cluster, network, second_network):
    """With timeouts of seconds between leader and agents, so that a cut is over within the test."""
    env = {"PYTHONPATH": f"{REPOSITORY / 'tests' / 'support' / 'short_timeouts'}:{slurm_cluster.env['PYTHONPATH']}"}
    chaos = run_chaos(
        tmp_path, slurm_cluster, (network, second_network), 3,
        faults=QUICK, seconds=6, limit_s=120, pauses_s=(0.1, 0.7), longest_s=4.0, env=env,
        faults_of_runs=("exception", "leak_child"), pilots=3,
    )  # fmt: skip
    assert chaos.done.total()


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_a_chaos_of_half_an_hour_on_64_nodes(tmp_path, slurm_or_skip, network, second_network):
    """SWEEP_CHAOS_SEED repeats one, as far as its faults go; SWEEP_CHAOS_S makes it shorter."""
    seed = int(os.environ.get("SWEEP_CHAOS_SEED") or random.SystemRandom().randrange(1_000_000))
    seconds = float(os.environ.get("SWEEP_CHAOS_S") or 1800.0)
    print(f"SWEEP_CHAOS_SEED={seed}")
    with Cluster(nodes=64, gpus_per_node=2, accounting=True) as cluster:
        run_chaos(
            tmp_path, cluster, (network, second_network), seed,
            faults=FAULTS, seconds=seconds, limit_s=seconds + 3600, pauses_s=(0.5, 6.0), longest_s=60.0,
            nodes=(1, 2, 4, 8), repeats=max(1, int(seconds / 25)), steps=(0.3, 0.32, 0.34, 0.36, 0.38),
            faults_of_runs=("exception", "hang", "oom_cuda", "nan", "leak_child"), pilot_time="6m", pilots=12,
        )  # fmt: skip
