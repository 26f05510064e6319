"""Runs of `sweep doctor` on pretend nodes with defects, and what they found."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support import driving
from tests.support.doctor.defect import CPU_CGROUP
from tests.support.paths import REPOSITORY

DEFECT = REPOSITORY / "tests" / "support" / "doctor" / "defect.py"
SOON = REPOSITORY / "tests" / "support" / "doctor" / "soon"
needs_root = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="defects of a node need root on Linux (mounts, cgroups)"
)
needs_cgroup = pytest.mark.skipif(
    not (CPU_CGROUP / "cpu.cfs_quota_us").exists() and not (CPU_CGROUP / "cpu.cfs_period_us").exists(),
    reason="half of a CPU needs the cpu controller of cgroup v1, writable",
)


def examine(tmp_path, *tiers, nodes=8, defects=None, executor="local", env=None, more=(), network=None, timeout=280):
    """(exit code, the report) of a run."""
    folder = Path(tmp_path)
    site = folder / "site.yaml"
    text = f"name: here\ngpu: cpu\ngpus_per_node: 1\nmax_nodes: {nodes}\npilot_time: 30m\npoll_interval_s: 1\n"
    if network is not None:
        text += f"interface: {network.interface}\ncontainer_prefix: {json.dumps(network.prefix)}\n"
    if defects:
        words = ",".join(f"{node}={what}" for node, what in defects.items())
        text += f"container_prefix: {json.dumps([sys.executable, str(DEFECT), words])}\n"
    site.write_text(text)
    path = f"{SOON}:{REPOSITORY}" if "never_starts" in (defects or {}).values() else str(REPOSITORY)
    asked = [word for tier in tiers for word in ("--tier", tier)]
    done = driving.run(
        "doctor", "--site", site, "--executor", executor, "--dir", folder / "runs", "--json", *asked, *more,
        env={**(env or {}), "PYTHONPATH": path}, timeout=timeout,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def verdicts(report, check):
    """node -> verdict of one check."""
    return {row["node"]: row["verdict"] for row in report["results"] if row["check"] == check}


def unfit(report):
    """(node, check) of every finding that makes a node unfit."""
    fine = ("ok", "warning", "unknown")
    return {(row["node"], row["check"]) for row in report["results"] if row["verdict"] not in fine}


def names(executor, count):
    """The nodes that an executor gives."""
    return [f"local-{at}" for at in range(count)] if executor == "local" else [f"n{at}" for at in range(1, count + 1)]
