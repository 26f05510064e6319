"""A stranger holds up to 2,000 connections to leader and ranks while they measure: nothing ends, nothing is lost."""

import contextlib
import json
import os
import pwd
import subprocess
import sys
import time

import psutil
import pytest

from tests.support import driving, flood
from tests.support.paths import REPOSITORY

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
SCRIPT = """
import os, sys, time
print(f"world size {os.environ['WORLD_SIZE']}", flush=True)
for step in range(1, 9):
    time.sleep(0.02)
    if os.environ["RANK"] == "0":
        sys.stdout.write(f"step {step} | loss {3 - step / 100:.4f} |\\n")
        sys.stdout.flush()
"""
KEYS = {"workload": "command", "global_batch": 1024, "micro_batch_size": [4, 8], "iterations": 4, "remeasure": 0}
KEYS |= {"warmup_iterations": 1, "constraints": ["tp == 1 and pp == 1 and zero == 0"]}
METRICS = "iteration: ^step (\\d+)\nloss: loss {number}\nworld_size: ^world size (\\d+)"
CONNECTIONS, LOG_BYTES, MEMORY_BYTES = 2000, 1 << 20, 1 << 30


def listening(root):
    """(address, port) of every port that a process or one below it listens on; the most memory that one of them has."""
    found, most = set(), 0
    for process in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            most = max(most, process.memory_info().rss)
            found |= {one.laddr[:2] for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN}
    return sorted(("127.0.0.1" if ip in ("0.0.0.0", "::") else ip, port) for ip, port in found), most


def measured(folder, repeats, flooded):
    """(seconds, what the stranger did, the most memory of a process) of a sweep of so many runs of each layout."""
    folder.mkdir()
    script = folder / "train.py"
    script.write_text(SCRIPT)
    params = {"command": f"{sys.executable} {script}", "start": "rank", "metrics": METRICS}
    grid = driving.simulated({"pilot_time": "4h"}, **KEYS, repeats=repeats, params=params)
    stranger = None
    if flooded:
        user = [pwd.getpwuid(65534).pw_name] if os.geteuid() == 0 else []  # of no one, on Debian
        words = [sys.executable, "-S", flood.__file__, "900", str(CONNECTIONS), *user]
        stranger = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPOSITORY)
    began, memory, known = time.monotonic(), 0, None
    with (folder / "launch.out").open("wb") as output:
        launch = driving.launching(folder, grid, cwd=folder, output=output)
    try:
        while launch.poll() is None:
            ports, most = listening(psutil.Process(launch.pid))
            memory = max(memory, most)
            if stranger and ports != known:
                stranger.stdin.write(json.dumps(ports).encode() + b"\n")
                stranger.stdin.flush()
                known = ports
            time.sleep(0.1)
    finally:
        if launch.poll() is None:
            driving.run("cancel", folder / "s")
    seconds = time.monotonic() - began
    did = json.loads(stranger.communicate(timeout=60)[0]) if stranger else None
    assert launch.returncode == 0, (folder / "launch.out").read_text()[-3000:]
    return seconds, did, memory


def check(folder, runs):
    records = driving.records_of(folder / "s")
    assert sorted((one["run_id"], one["attempt"]) for one in records) == sorted({(r["run_id"], 1) for r in records})
    assert [one["outcome"] for one in records] == ["ok"] * runs
    large = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size > LOG_BYTES]
    assert [path.name for path in large if path.suffix != ".jsonl"] == []


def test_a_flood_of_connections_delays_runs_and_does_nothing_else(tmp_path):
    quiet_s, _, _ = measured(tmp_path / "quiet", 20, flooded=False)
    check(tmp_path / "quiet", 40)
    flooded_s, did, memory = measured(tmp_path / "flooded", 100, flooded=True)
    check(tmp_path / "flooded", 200)
    print({"quiet_s": quiet_s, "flooded_s": flooded_s, **did, "memory_mib": memory >> 20})
    assert did["made"] > 5000
    assert did["held"] > CONNECTIONS / 2
    assert memory < MEMORY_BYTES
    assert flooded_s / 200 < 5 * quiet_s / 40, "the stranger takes a core of this machine too"
