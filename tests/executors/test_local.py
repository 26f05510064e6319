"""LocalExecutor with real processes."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sweep.executors.executor import JobState, JobStatus, PilotRequest, SubmitError
from sweep.executors.local import LocalExecutor, LocalJob
from sweep.inputs.site import Site
from tests.support.paths import REPOSITORY
from tests.support.slurm.services import wait_until


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Job ids that the test started; killed with all their children when it ends."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    ids: list[str] = []
    yield ids
    for job_id in ids:
        job = LocalJob.parse(job_id)
        assert job is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)


def executor(sweep_dir: Path, **site: Any) -> LocalExecutor:
    if not (sweep_dir / "pilots").exists():
        (sweep_dir / "pilots").mkdir(parents=True)
    return LocalExecutor(
        Site(gpus_per_node=2, gpu="cpu", **site), sweep_dir, pilot_main="tests.support.slurm.pilots:stay"
    )


def request_for(name: str, token: str = "") -> PilotRequest:
    return PilotRequest(token=token or f"token-{name}-{os.getpid()}", name=name, nodes=1, time_limit_s=60)


def begun(sweep_dir: Path, name: str) -> dict[str, object]:
    seen = sweep_dir / "pilots" / name / "seen.json"
    assert wait_until(seen.exists, 20), (seen.parent / "stderr").read_text()
    found: dict[str, object] = json.loads(seen.read_text())
    return found


def state(local: LocalExecutor, job: str) -> JobState:
    return local.poll([job])[job].state


def test_a_machine_without_bash_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SubmitError, match=r"No such file or directory: 'bash'") as caught:
        executor(tmp_path).submit(request_for("p1"))
    assert not caught.value.retry


def test_a_pilot_from_start_to_end(tmp_path: Path, started: list[str]) -> None:
    hostile = "\"; rm -rf ~\" $(x) '{{ }}'"
    sweep_dir = tmp_path / "it's $(a) dir"
    local = executor(sweep_dir, setup=("export FROM_SETUP='a  b'",), env={"FROM_SITE": hostile})
    request = request_for("p1")
    job = local.submit(request)
    started.append(job)
    seen = begun(sweep_dir, "p1")
    environment = seen["environment"]
    assert isinstance(environment, dict)
    assert seen["job_id"] == job, "the leader and the launcher agree on the job's id"
    assert environment["SWEEP_PILOT"] == request.token
    assert (environment["FROM_SETUP"], environment["FROM_SITE"]) == ("a  b", hostile)
    assert seen["session"] == seen["pid"], "a terminal that closes does not take the pilot along"
    assert local.poll([job])[job] == JobStatus(state=JobState.RUNNING, word="running")
    assert local.find(request.token) == (JobState.RUNNING, job)
    local.cancel([job])
    assert wait_until(lambda: state(local, job) is JobState.GONE, 10)
    assert local.find(request.token) == (JobState.GONE, None)
    folder = sweep_dir / "pilots" / "p1"
    assert (folder / "terminated").exists()
    assert ((folder / "stdout").read_text(), (folder / "stderr").read_text()) == ("begun\n", "warned\n")


def watching(seconds: float) -> list[psutil.Process]:
    """What waits for the end of a set-up."""
    return [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", f"{seconds:g}"]]


def test_a_setup_that_hangs_ends_the_pilot_with_a_reason(tmp_path: Path, started: list[str]) -> None:
    local = executor(tmp_path, setup=("sleep 54321 & wait",), setup_time=0.3)
    started.append(job := local.submit(request_for("p1")))
    assert wait_until(lambda: state(local, job) is JobState.GONE, 20)
    assert "setup did not end within 0.3 s" in (tmp_path / "pilots" / "p1" / "stderr").read_text()
    assert watching(54321) == []


def test_a_setup_in_time_names_its_command_that_failed_and_leaves_nothing_that_watches_it(
    tmp_path: Path, started: list[str]
) -> None:
    lines = ("false || true", "no_such_module load cuda/12", "[ 1 = 1 ]", "true & wait")
    local = executor(tmp_path, setup=lines, setup_time=12345.5)
    started.append(job := local.submit(request_for("p1")))
    begun(tmp_path, "p1")
    said = [line for line in (tmp_path / "pilots/p1/stderr").read_text().splitlines() if "exit status" in line]
    assert said == ["setup: exit status 127 of: no_such_module load cuda/12"]
    assert wait_until(lambda: watching(12345.5) == [], 10)
    local.cancel([job])


def test_outlives_its_launcher_and_is_found_again(tmp_path: Path, started: list[str]) -> None:
    """kill -9 of the launcher right after the start: another one finds the pilot by its token."""
    request = request_for("p1")
    code = (
        "import os, pathlib, signal\nfrom tests.executors.test_local import executor, request_for\n"
        f"executor(pathlib.Path({str(tmp_path)!r})).submit(request_for('p1', {request.token!r}))\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=False)
    assert done.returncode == -signal.SIGKILL
    local = executor(tmp_path)
    found, job = local.find(request.token)
    assert found is JobState.RUNNING
    assert job is not None
    started.append(job)
    assert begun(tmp_path, "p1")["job_id"] == job == local.find(request.token)[1]
    local.cancel([job])
    assert wait_until(lambda: state(local, job) is JobState.GONE, 10)


def test_a_pilot_in_the_middle_of_an_exec_is_found(tmp_path: Path) -> None:
    """Its environment reads as empty for a moment: `find` after `poll` had said RUNNING gave GONE, 9 times of 100."""
    again = 'exec /bin/sh -c "$0" "$0"'
    pilot = subprocess.Popen(
        ["/bin/sh", "-c", again, again], env={**os.environ, "SWEEP_PILOT": (token := str(tmp_path))}
    )
    try:
        local = executor(tmp_path)
        assert {local.find(token)[0] for _ in range(40)} == {JobState.RUNNING}
    finally:
        pilot.kill()
        pilot.wait()


def test_a_zombie_is_gone(tmp_path: Path, started: list[str]) -> None:
    local = executor(tmp_path)
    job = local.submit(request_for("p1"))
    started.append(job)
    parsed = LocalJob.parse(job)
    assert parsed is not None
    begun(tmp_path, "p1")
    os.kill(parsed.pid, signal.SIGKILL)
    assert wait_until(lambda: psutil.Process(parsed.pid).status() == psutil.STATUS_ZOMBIE, 5)
    assert executor(tmp_path).poll([job])[job].state is JobState.GONE
    assert state(local, job) is JobState.GONE
    assert not psutil.pid_exists(parsed.pid), "the executor that started it has reaped it"


def test_a_reused_pid_is_not_taken_for_the_job(tmp_path: Path) -> None:
    me = LocalJob.of(os.getpid())
    assert state(executor(tmp_path), me.job_id) is JobState.RUNNING
    older = LocalJob(me.pid, me.start + "1", me.host)
    assert state(executor(tmp_path), older.job_id) is JobState.GONE
    executor(tmp_path).cancel([older.job_id])  # would end this very test


def test_jobs_that_cannot_be_seen_from_here_are_unknown(tmp_path: Path) -> None:
    me = LocalJob.of(os.getpid())
    elsewhere = LocalJob(me.pid, me.start, "login-node-1.a-b").job_id
    statuses = executor(tmp_path).poll([elsewhere, "4711", "local-x-1@h"])
    assert {status.state for status in statuses.values()} == {JobState.UNKNOWN}
    assert "login-node-1.a-b" in statuses[elsewhere].reason
    executor(tmp_path).cancel([elsewhere])


def test_a_sweep_directory_that_is_away_is_not_made_again(tmp_path: Path) -> None:
    local = executor(tmp_path / "s")
    (tmp_path / "s").rename(tmp_path / "away")
    with pytest.raises(FileNotFoundError):
        local.submit(request_for("p1"))
    assert not (tmp_path / "s").exists()


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pilots").write_text("a file, not a directory")
    with pytest.raises(SubmitError, match="did not start"):
        executor(tmp_path).submit(request_for("p1"))
