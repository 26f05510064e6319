"""Answers of a real Slurm that do not arrive as they were given: none of them says that a job is gone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep.executors.executor import JobState
from tests.executors.test_slurm import executor, request_for, run_state, until
from tests.support.lying_slurm import LIES, LyingSlurm
from tests.support.slurm.cluster import Cluster

pytestmark = pytest.mark.slurm

ASKED = ("squeue", "sacct", "scontrol")


@pytest.fixture(params=["slurm_cluster", "slurm_cluster_no_accounting"])
def lying(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LyingSlurm]:
    cluster: Cluster = request.getfixturevalue(request.param)
    cluster.use(monkeypatch)
    lying = LyingSlurm(tmp_path / "bin", os.environ["PATH"])
    monkeypatch.setenv("PATH", lying.path)
    yield lying
    cluster.cancel_all()
    cluster.wait_idle()


def test_no_answer_that_is_damaged_old_of_another_job_or_missing_ends_a_living_one(
    lying: LyingSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = executor(tmp_path, "stay")
    request = request_for("p1", nodes=1)
    assert slurm.find(request.token) == (JobState.GONE, None)  # an old answer is this one
    job = slurm.submit(request)
    until(slurm, job, JobState.RUNNING)
    for clients in (ASKED[:1], ASKED[1:], ASKED):
        for lie in [lie for lie in LIES if lie != "late"]:
            for client in clients:
                lying.begin(client, lie, 0)
            fresh = executor(tmp_path)
            states = [each.poll([job])[job] for each in (slurm, fresh)]
            found = [each.find(request.token) for each in (slurm, fresh)]
            for client in clients:
                lying.end(client)
            gone = [status for status in states if status.state is JobState.GONE and status.name in ("", request.token)]
            assert not gone, (clients, lie)
            if lie != "old":  # it is a whole answer: a second one, later, decides
                assert (JobState.GONE, None) not in found, (clients, lie)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))  # an upgrade replaces the clients
        assert (run_state(slurm, job).state, slurm.find(request.token)) == (JobState.UNKNOWN, (JobState.UNKNOWN, None))
    slurm.cancel([job])
    until(slurm, job, JobState.GONE)
