"""Processes of ranks that left their parents are ended with the attempt."""

import os
import subprocess
import sys
import uuid

from sweep.pilot.agent.processes import NODE_MARK, PILOT_MARK

AGENT = """
import asyncio, os, subprocess
import psutil
from sweep.pilot.agent.cleanup import clear

def escape(**marks):
    rank = ["sh", "-c", "setsid sleep 300 >/dev/null & echo $!"]  # it ends: init becomes the parent of what it started
    return psutil.Process(int(subprocess.check_output(rank, env={**os.environ, **marks})))
ours, others = escape(), escape(SWEEP_NODE="another-node")
left = asyncio.run(clear([], [], 0.1, lambda: None))
print(left, *(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in (ours, others)))
others.kill()
"""


def test_a_process_that_escaped_from_its_rank_is_killed_and_one_of_another_node_is_not():
    marks = {PILOT_MARK: f"test-{uuid.uuid4().hex}", NODE_MARK: "n1"}
    command = [sys.executable, "-c", AGENT]
    shown = subprocess.check_output(command, env={**os.environ, **marks}, text=True, timeout=60)
    assert shown == "[] False True\n"
