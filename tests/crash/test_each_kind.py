"""After kill -9 of any kind of process no process of the sweep is left a minute later, and a resume measures the rest.

The launcher is killed too every time, so it cannot clean up. Ranks have leaked daemons by then.
"""

import json
import time

import psutil
import pytest

from tests.support import driving
from tests.support import process_kinds as kinds
from tests.support.faults.table import note
from tests.support.process_kinds import leaking, wait_for_daemons

MINUTE_S = 60.0


def strike(kind, directory, launcher, cluster=None):
    """Kill the launcher and one of the kind; of srun, which forks, all. Returns the attempt's processes."""
    found, of_attempt = wait_for_daemons(kind, directory, launcher, cluster)
    launcher.kill()
    launcher.wait()
    for process in found if kind == "srun" else found[:1]:
        if process.pid != launcher.pid:
            process.kill()
    return of_attempt


def assert_nothing_is_left(tmp_path, kind, executor, cluster=None, **grid):
    """(When the kill was, seconds until the killed attempt's processes were gone, all records)."""
    env = cluster.env if cluster is not None else None
    directory = tmp_path / "s"
    with (tmp_path / "launch.out").open("ab") as output:
        launcher = driving.launching(tmp_path, leaking(**grid), executor=executor, env=env, output=output)
        of_attempt = strike(kind, directory, launcher, cluster)
        killed_at = time.time()
        psutil.wait_procs(of_attempt, timeout=MINUTE_S)
        clean_s = time.time() - killed_at
        left = driving.wait_until_unmarked(directory, killed_at + MINUTE_S - time.time())
        assert left == [], f"{MINUTE_S:.0f} s after kill -9 of a {kind}"
        resumed = driving.start("resume", directory, env=env, output=output)
        assert resumed.wait(180) == 0, (tmp_path / "launch.out").read_text()[-3000:]
    records = driving.assert_each_run_measured_once(directory)
    assert driving.wait_until_unmarked(directory, 20) == []
    return killed_at, clean_s, records


IN_CI = {"agent", "launcher", "leader"}
"""on this machine; tests/crash/test_kills.py and tests/faults/test_ranks.py kill ranks and fork servers too"""


@pytest.mark.parametrize(
    "kind", [kind if kind in IN_CI else pytest.param(kind, marks=pytest.mark.long) for kind in kinds.LOCAL]
)
def test_on_this_machine(tmp_path, kind):
    assert_nothing_is_left(tmp_path, kind, "local", batches=[1], step_s=0.3)
    sweep_id = json.loads((tmp_path / "s" / "provenance.json").read_text())["sweep_id"]
    named = [words for words in map(_words, psutil.process_iter()) if sweep_id in words or str(tmp_path) in words]
    assert named == []


def _words(process):
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.mark.long
@pytest.mark.slurm
@pytest.mark.parametrize("kind", kinds.SLURM)
def test_on_slurm(tmp_path, slurm_cluster, kind):
    killed_at, clean_s, records = assert_nothing_is_left(
        tmp_path, kind, "slurm", slurm_cluster, batches=[1, 2], step_s=0.5
    )
    slurm_cluster.wait_idle(30)
    # The end of a leader's lost attempt is its job's as Slurm says it, in whole seconds
    record = next(r for r in records if r["started_at"] <= killed_at <= r["ended_at"] + 1)
    later = min((r for r in records if r["started_at"] > killed_at), key=lambda r: r["started_at"])
    detect_s = None
    if record["outcome"] not in ("ok", "lost"):
        detect_s = record["ended_at"] - record["teardown_s"] - killed_at
    words = "`kill -9` of a launcher" if kind == "launcher" else f"`kill -9` of launcher and {kind}"
    clean_s = None if record["outcome"] == "ok" else clean_s
    note(words, record["outcome"], detect_s, clean_s, [], later["outcome"])
