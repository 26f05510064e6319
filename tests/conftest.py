"""Fixtures for all tests: real Slurm clusters on this machine, started once per test session."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.support.browser import browser
from tests.support.command_line import command
from tests.support.slurm.cluster import Cluster, unavailable

__all__ = ["browser", "command"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores it, and so would every launcher that is started here
    signal.signal(signal.SIGINT, signal.default_int_handler)


if not os.environ.get("SWEEP_REFERENCE_DATA"):
    os.environ.pop("SWEEP_REFERENCE_DATA", None)  # set but empty names no folder, and not the current one

# How long an example takes says how loaded the machine is. Hypothesis does the same where it finds itself in CI
hypothesis.settings.register_profile("default", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])

TESTS = Path(__file__).parent
SCHEDULER = {
    "executors/test_slurm.py",
    "faults/test_cluster.py",
    "faults/test_ranks.py",
    "faults/test_storm.py",
    "inputs/test_detect.py",
    "project/test_slurm_harness.py",
    "system/test_slurm_limits.py",
}
"""files that ask what the scheduler and single nodes do; the other Slurm tests are of whole sweeps"""


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Workers of pytest-xdist: two have a Slurm cluster each, and begin at once; the others take file after file."""
    if not hasattr(config, "workerinput"):
        return
    items.sort(key=lambda item: item.get_closest_marker("slurm") is None)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """The server of commands imports while the first tests run, or the first command of a test would wait for that."""
    driving = sys.modules.get("tests.support.driving")
    if driving is not None and not session.config.option.collectonly:
        driving.prepared.server()


def _group(item: pytest.Item) -> str:
    file = item.path.relative_to(TESTS).as_posix()  # a name alone may occur in several folders
    if not item.get_closest_marker("slurm"):
        return file
    return "slurm, scheduler" if file in SCHEDULER else "slurm, sweeps"


@pytest.fixture(scope="session")
def slurm_or_skip() -> None:
    """Fail (SWEEP_REQUIRE_SLURM=1) or skip where no cluster can be started here."""
    reason = unavailable()
    if reason and os.environ.get("SWEEP_REQUIRE_SLURM") == "1":
        pytest.fail(f"SWEEP_REQUIRE_SLURM=1, but {reason}", pytrace=False)
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def slurm_cluster(slurm_or_skip: None) -> Iterator[Cluster]:
    """8 nodes with 2 pretend GPUs and 8 claimed CPUs each, with accounting. Leave it idle: tests share it."""
    with Cluster(nodes=8, gpus_per_node=2, accounting=True) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def slurm_cluster_no_accounting(slurm_or_skip: None) -> Iterator[Cluster]:
    """The same without slurmdbd: sacct fails, and squeue forgets a job after 2 s (the least it takes)."""
    with Cluster(nodes=8, gpus_per_node=2, accounting=False, extra="MinJobAge=2") as cluster:
        yield cluster
