"""What lies in the directory in which a sweep is launched is imported by no process of the sweep."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import driving

SHADOWED = ("psutil", "json", "msgspec", "submitit", "pyarrow", "asyncio", "random", "sweep", "bench_workloads")
TRAP = """
import os
with open({log!r}, "a") as file:
    file.write(f"{{__name__}} by {{open(f'/proc/{{os.getpid()}}/cmdline').read()}}\\n")
raise SystemExit(1)
"""


@pytest.fixture
def folder(tmp_path):
    """A working directory whose modules note who imports them."""
    here = tmp_path / "launched here"
    here.mkdir()
    for name in SHADOWED:
        (here / f"{name}.py").write_text(TRAP.format(log=str(tmp_path / "imported")))
    (here / "grid.yaml").write_text(driving.slow(0.01))
    return here


def launch(folder, executor, env):
    """By the installed script, as a user does."""
    script = Path(sys.executable).with_name("sweep")
    return subprocess.run(
        [script, "launch", "grid.yaml", "--dir", "s", "--executor", executor, "--yes"],
        cwd=folder,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def check(folder, done):
    log = folder.parent / "imported"
    assert not log.exists(), log.read_text()
    assert done.returncode == 0, done.stderr
    driving.assert_each_run_measured_once(folder / "s")


def test_by_a_local_pilot_its_agents_and_its_fork_servers(folder):
    check(folder, launch(folder, "local", {}))


@pytest.mark.slurm
def test_by_a_job_of_slurm_its_agents_and_its_fork_servers(folder, slurm_cluster):
    check(folder, launch(folder, "slurm", slurm_cluster.env))
