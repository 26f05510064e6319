"""Fixtures for all tests: real Slurm clusters on this machine, started once per test session."""

import gc
import os
import shlex
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


gc.disable()  # until all is imported, and stays: the collector would look at ever more modules in vain

if not os.environ.get("SWEEP_REFERENCE_DATA"):
    os.environ.pop("SWEEP_REFERENCE_DATA", None)  # set but empty names no folder, and not the current one

# How long an example takes says how loaded the machine is. Hypothesis does the same where it finds itself in CI
hypothesis.settings.register_profile("default", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])

TESTS = Path(__file__).parent
RERUNS = 10
"""commands that are printed after failures"""
SCHEDULER = {
    "executors/test_slurm.py",
    "faults/test_chaos.py",
    "faults/test_cluster.py",
    "faults/test_ranks.py",
    "inputs/test_detect.py",
    "system/test_packing.py",
    "system/test_slurm_limits.py",
    "system/test_two_clusters.py",
}
"""Files that ask what the scheduler and single nodes do; the other Slurm tests are of whole sweeps. The chaos and the
tests of packing are here so that both take as long."""
LONGEST = (
    "project/test_docs_run.py",
    "trackers/test_trackers.py",
    "faults/test_local.py",
    "bench_workloads/transformer/test_trust.py",
    "cli/test_edges.py",
    "system/test_local.py",
    "bench_workloads/trainers/test_driver.py",
    "faults/test_signals.py",
    "crash/test_kills.py",
    "crash/test_each_kind.py",
    "crash/test_two_sweeps.py",
    "security/test_border.py",
    "project/test_packaging.py",
    "system/test_growing.py",
    "system/test_node_time.py",
    "testing/test_third_party.py",
    "faults/test_network.py",
    "doctor/test_measured.py",
    "project/test_linear.py",
)
"""The longest of the other files, which the workers take first: short ones last, so that the workers end together."""


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Workers of pytest-xdist: two have a Slurm cluster each, and begin at once; the others take file after file."""
    if not hasattr(config, "workerinput"):
        return
    items.sort(key=_place)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """The server of commands imports while the first tests run, or the first command of a test would wait for that."""
    gc.freeze()
    gc.enable()
    driving = sys.modules.get("tests.support.driving")
    if driving is not None and not session.config.option.collectonly:
        driving.prepared.server()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How to run again what failed, alone."""
    failed = [report.nodeid for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, [])]
    for nodeid in list(dict.fromkeys(failed))[:RERUNS]:
        terminalreporter.write_line(f"again: {sys.executable} -m pytest {shlex.quote(nodeid.partition('@')[0])}")


def _file(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).as_posix()  # a name alone may occur in several folders


def _place(item: pytest.Item) -> int:
    """The order in which workers take the groups: those on Slurm, the longest files, the others as they are."""
    file = _file(item)
    if item.get_closest_marker("slurm"):
        return -1
    return LONGEST.index(file) if file in LONGEST else len(LONGEST)


def _group(item: pytest.Item) -> str:
    file = _file(item)
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
