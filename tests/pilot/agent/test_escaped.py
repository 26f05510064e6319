"""Processes of ranks that left their parents are ended with the attempt."""

import json
import os
import subprocess
import sys
import uuid

from sweep.pilot.agent.processes import NODE_MARK, PILOT_MARK

AGENT = """
import asyncio, json, os, subprocess, sys, time
import psutil
from sweep.pilot.agent.cleanup import clear

# A rank that starts a process in a session of its own, prints its number and ends: init becomes its parent.
rank = [sys.executable, "-c", "import subprocess, sys;"
        "p = subprocess.Popen(['sleep', '300'], start_new_session=True, stdout=subprocess.DEVNULL); print(p.pid)"]
def escape(marks):
    return int(subprocess.run(rank, env={**os.environ, **marks}, stdout=subprocess.PIPE, text=True).stdout)
ours, others = escape({}), escape({"SWEEP_NODE": "another-node"})
assert psutil.Process(ours).ppid() != os.getpid()
left = asyncio.run(clear([], [], 0.1, lambda: None))
def lives(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
print(json.dumps({"left": left, "ours": lives(ours), "others": lives(others)}))
for pid in filter(lives, (ours, others)):
    psutil.Process(pid).kill()
"""


def test_a_process_that_escaped_from_its_rank_is_killed_and_one_of_another_node_is_not():
    marks = {PILOT_MARK: f"test-{uuid.uuid4().hex}", NODE_MARK: "n1"}
    done = subprocess.run(
        [sys.executable, "-c", AGENT],
        env={**os.environ, **marks},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"left": [], "ours": False, "others": True}
