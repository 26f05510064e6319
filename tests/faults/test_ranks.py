"""Each fault of a real torch rank has its expected outcome, and the same pilot measures its next run."""

import contextlib
import json
import time

import pytest

from sweep.pilot.agent.ranks import LOG_BYTES
from tests.support.faults.table import note
from tests.support.faults.workload import FAULTY_MODEL

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

EXPECTED = {
    "hang": "hang",
    "daemon": "ok",
    "oom_cuda": "oom_cuda",
    "oom_host": "oom_host",
    "kill_9": "unknown",
    "segfault": "segfault",
    "nan_loss": "nan_loss",
    "import_error": "import_error",
    "port_in_use": "port_in_use",
    "disk_full": "disk_full",
}
WORDS = {
    "hang": "a rank sleeps indefinitely in iteration 3 (steady limit 8 s)",
    "daemon": "a rank double-forks a setsid child that holds memory",
    "oom_cuda": "`torch.OutOfMemoryError` raised",
    "oom_host": "the kernel's OOM killer, in a memory cgroup",
    "kill_9": "`kill -9` of a rank",
    "segfault": "segfault",
    "nan_loss": "NaN in the weights",
    "import_error": "import error",
    "port_in_use": "a port in use",
    "disk_full": "disk full (small tmpfs)",
}
QUICK = ("hang", "oom_host")
ONCE_MORE_ELSEWHERE = {"hang", "oom_host", "kill_9", "segfault", "disk_full"}
DETECT_S = 8 + 10
"""the steady limit, plus time for a busy machine"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("faults", [QUICK, pytest.param(tuple(EXPECTED), marks=pytest.mark.long)], ids=["few", "all"])
def test_faults_of_ranks(bench, memory_cgroup, small_disk, faults):
    """One sweep, pilots of two nodes and four ranks: a faulty run, a healthy one, and so on.

    A second pilot runs retries on other nodes; on a slow machine it runs a first attempt too.
    """
    enter = f'echo $$ > {memory_cgroup}/cgroup.procs; exec "$@"'
    site = {"scratch": str(small_disk), "container_prefix": ["/bin/sh", "-c", enter, "agent"]}
    launcher = bench.start(site, models=[FAULTY_MODEL, "tiny-4M"], params={"fault": list(faults)})
    assert launcher.wait(800) == 0, bench.output()
    left = bench.left()
    records = bench.records()
    firsts = [r for r in records if r["attempt"] == 1]
    healthy = [r for r in firsts if r["model"] != FAULTY_MODEL]
    assert [r["outcome"] for r in healthy] == ["ok"] * len(faults), [r["message"] for r in healthy]
    seen, rows = {}, []
    for place, record in enumerate(firsts):
        if record["model"] == FAULTY_MODEL:
            fault = json.loads(record["params_json"])["fault"]
            later = [r for r in firsts[place + 1 :] if r["pilot"] == record["pilot"]]
            following = [r["outcome"] for r in later if r["model"] != FAULTY_MODEL][:1]
            seen[fault] = record
            ended = record["ended_at"] - record["teardown_s"]
            detect_s = ended - bench.fault_at(record) if fault not in ("daemon", "nan_loss") else None
            rows.append((WORDS[fault], record["outcome"], detect_s, record["teardown_s"], left, *(following or ["-"])))
            if detect_s is not None:
                assert 0 <= detect_s < DETECT_S, (fault, detect_s)
    assert {fault: record["outcome"] for fault, record in seen.items()} == {f: EXPECTED[f] for f in faults}, {
        fault: (r["message"], r["evidence"]) for fault, r in seen.items() if r["outcome"] != EXPECTED[fault]
    }
    assert "rank 1 on n" in seen["hang"]["message"]
    assert "oom-kill" in seen["oom_host"]["evidence"] or "Killed process" in seen["oom_host"]["evidence"]
    assert left == []
    assert list(small_disk.iterdir()) == [], "the pilots' temporary files"
    assert_retried_elsewhere(records, firsts, faults)
    assert rows[0][-1] == "ok", "the pilot with the fault measures the next run"
    for row in rows:
        note(*row)


@pytest.mark.long
def test_a_rank_that_ignores_sigterm(bench):
    """In a separate sweep: the hangs of two different runs on one node would take that node out of service."""
    launcher = bench.start(models=[FAULTY_MODEL, "tiny-4M"], params={"fault": "ignore_sigterm"})
    assert launcher.wait(250) == 0, bench.output()
    left = bench.left()
    hung, healthy, again = bench.records()
    assert (hung["outcome"], healthy["outcome"], again["outcome"]) == ("hang", "ok", "hang")
    assert hung["pilot"] == healthy["pilot"]
    assert "rank 1 on n" in hung["message"]
    assert set(hung["node_names"]).isdisjoint(again["node_names"])
    detect_s = hung["ended_at"] - hung["teardown_s"] - bench.fault_at(hung)
    assert detect_s < DETECT_S
    assert left == []
    note("the same, ignoring SIGTERM", hung["outcome"], detect_s, hung["teardown_s"], left, healthy["outcome"])


def assert_retried_elsewhere(records, firsts, faults):
    """A fault that a node may cause was retried on disjoint nodes; it recurred there, so the run causes it."""
    first_nodes = {r["run_id"]: set(r["node_names"]) for r in firsts}
    seconds = [r for r in records if r["attempt"] == 2 and json.loads(r["params_json"])["fault"] != "port_in_use"]
    tried = {json.loads(r["params_json"])["fault"] for r in seconds if r["model"] == FAULTY_MODEL}
    assert tried == ONCE_MORE_ELSEWHERE & set(faults)
    assert all(first_nodes[r["run_id"]].isdisjoint(r["node_names"]) for r in seconds)
    third = {json.loads(r["params_json"])["fault"] for r in records if r["attempt"] == 3}
    assert third <= {"port_in_use"}


def test_a_slow_first_iteration_is_tolerated(bench):
    """The first iteration takes 12 s, the later ones 0.1 s, with a steady limit of 8 s: it is never killed."""
    launcher = bench.start(params={"first_s": 12.0, "step_s": 0.1}, nodes=[1])
    assert launcher.wait(250) == 0, bench.output()
    assert [r["outcome"] for r in bench.records()] == ["ok"]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_full_limits(bench):
    """The default limits: 60 s of first iteration are tolerated, a hang in steady state is found within 20 s + 5 s."""
    timeouts = {"start": "300s", "first_iteration": "300s", "steady": "20s"}
    models = [FAULTY_MODEL, "tiny-4M"]
    launcher = bench.start(
        params={"first_s": 60.0, "step_s": 0.1, "fault": "hang"}, nodes=[1], timeouts=timeouts, models=models
    )
    assert launcher.wait(850) in (0, 1), bench.output()
    outcomes = {}
    for record in bench.records():
        outcomes.setdefault(record["model"], []).append(record)
    assert [r["outcome"] for r in outcomes["tiny-4M"]] == ["ok"]
    hangs = outcomes[FAULTY_MODEL]
    assert {r["outcome"] for r in hangs} == {"hang"}
    detect_s = hangs[0]["ended_at"] - hangs[0]["teardown_s"] - bench.fault_at(hangs[0])
    note(
        "60 s first iteration, then 0.1 s: tolerated; then a hang, default limits",
        "hang",
        detect_s,
        hangs[0]["teardown_s"],
        bench.left(),
        "ok",
    )
    assert detect_s < 25


@pytest.mark.long
@pytest.mark.timeout(600)
def test_two_gigabytes_of_output_in_a_minute_are_no_hang(bench):
    """The disk holds little of it, the agent stays connected, and the end is evidence of what followed."""
    scratch = bench.root / "scratch"
    scratch.mkdir()
    launcher, most = bench.start({"scratch": str(scratch)}, models=[FAULTY_MODEL], params={"fault": "flood"}), 0
    while launcher.poll() is None:
        with contextlib.suppress(FileNotFoundError):
            most = max(most, sum(path.stat().st_blocks * 512 for path in scratch.rglob("*.log")))
        time.sleep(0.1)
    (record,) = bench.records()
    assert (record["outcome"], "after the flood" in record["message"]) == ("python_exception", True), record["message"]
    assert "the last line of the flood" in (bench.directory / "logs" / f"{record['run_id']}.1.log").read_text()
    assert most < 4 * LOG_BYTES, "what it may hold, and what is written between two looks"
    assert bench.left() == []
