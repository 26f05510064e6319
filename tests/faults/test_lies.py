"""Sweeps on a real Slurm whose clients lie, or are missing, while a healthy pilot measures."""

import os
import time
from pathlib import Path

import pytest

from tests.support import driving
from tests.support.driving import running_attempt, wait_for
from tests.support.lying_slurm import CLIENTS, LyingSlurm

pytestmark = [pytest.mark.slurm, pytest.mark.parallel, pytest.mark.long, pytest.mark.timeout(300)]

ASKED = ("squeue", "sacct", "scontrol")
LIE_S = 40.0
SITE = {"pilot_time": "20m", "poll_interval_s": 1, "max_pilots": 1}
MEASURED = {"micro_batch_size": [1, 2, 4, 8], "iterations": 4, "warmup_iterations": 2, "params": {"step_s": 2.5}}
GRID = driving.simulated(SITE, nodes=2, **MEASURED)


def without_clients(folder: Path, path: str) -> str:
    """PATH with links to all programs but Slurm's clients."""
    folder.mkdir()
    for place in path.split(os.pathsep):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            if program.name not in CLIENTS and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return str(folder)


@pytest.fixture
def measured(tmp_path, slurm_cluster):
    """Acts a fault while the one pilot of a sweep measures, and checks at the end that it measured all runs, once."""
    path = slurm_cluster.env["PATH"]
    lying = LyingSlurm(tmp_path / "bin", path)

    def measure(act, *, clients_alone=False):
        env = {**slurm_cluster.env, "PATH": lying.path}
        if clients_alone:
            env["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{without_clients(tmp_path / 'other', path)}"
        launcher = driving.launching(
            tmp_path, GRID, env=env, executor="slurm", output=(tmp_path / "launch.out").open("ab")
        )
        wait_for(lambda: running_attempt(tmp_path / "s"), 90)
        act(lying)
        assert launcher.poll() is None, (tmp_path / "launch.out").read_text()[-3000:]
        assert launcher.wait(120) == 0, (tmp_path / "launch.out").read_text()[-3000:]
        records = driving.assert_each_run_measured_once(tmp_path / "s")
        assert {record["outcome"] for record in records} == {"ok"}
        assert len(driving.state_of(tmp_path / "s").pilots) == 1
        assert driving.wait_until_unmarked(tmp_path / "s", 20) == []

    yield measure
    slurm_cluster.wait_idle()


@pytest.mark.parametrize("lie", ["nothing", "garbage", "half", "other", "old"])
def test_clients_that_lie_for_40_s_while_a_healthy_pilot_measures(measured, lie):
    def act(lying):
        for client in ASKED:
            lying.begin(client, lie)
        time.sleep(LIE_S)
        for client in ASKED:
            lying.end(client)

    measured(act)


def test_clients_that_are_missing_for_6_s(measured, tmp_path):
    def act(_lying):
        (tmp_path / "bin").rename(tmp_path / "upgraded")
        time.sleep(6)
        (tmp_path / "upgraded").rename(tmp_path / "bin")

    measured(act, clients_alone=True)
