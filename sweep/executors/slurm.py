"""Pilots as Slurm jobs: one script per pilot, submitted through submitit, polled by one squeue at a time.

submitit turns a Python function into a job. Three of its parts are replaced: the script is ours
(``sweep.executors.script``), sbatch has a time limit and a clean environment, and jobs are polled by squeue, since
submitit's watcher needs accounting and never ends without it (submitit issue 1720).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import submitit

from bench_workloads.interpreter import module_command
from sweep.errors import Mistake, SweepError
from sweep.executors.entry import PILOT_MAIN, run_pilot
from sweep.executors.executor import JobState, JobStatus, PilotRequest, SubmitError, first_live
from sweep.executors.script import render_pilot, segment_option
from sweep.executors.slurm_states import (
    SACCT_FORMAT,
    SQUEUE_FORMAT,
    job_id_of,
    may_work_later,
    meaning,
    parse,
    setting,
    shown,
)
from sweep.inputs.site import Site
from sweep.stated import shell_word, shell_words
from sweep.store.directory import write_derived

SCRIPT = "pilot.sbatch"
PICKLE = "pilot.pkl"
SUBMIT_TIMEOUT_S = 60.0
"""for sbatch: six times Slurm's default MessageTimeout (10 s, man slurm.conf), since sbatch repeats what a busy
controller refuses"""
QUERY_TIMEOUT_S = 30.0
"""for the other clients: three times MessageTimeout"""
IDS_PER_COMMAND = 500
"""Linux limits one argument at 128 KiB, and slurmdbd answers long lists slowly"""
MOST_SHOWN = 20
"""jobs that one poll asks the controller for by themselves; the next poll asks for others, as these are closed"""
_FILTERS = ("SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SACCT_", "SCANCEL_", "SLURM_")
_RETAINED = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT"})


class SlurmExecutor:
    """Implements ``sweep.executors.executor.Executor`` on Slurm's command line clients.

    ``pilot_main`` names the function that the job calls with the sweep directory and the pilot's name.
    """

    def __init__(self, site: Site, sweep_dir: Path | str, *, pilot_main: str = PILOT_MAIN) -> None:
        self._site = site
        self._sweep_dir = Path(sweep_dir).expanduser().absolute()
        self._main = pilot_main
        self._config: str | None = None

    def cluster(self) -> str:
        """The name of the cluster whose controller answers; empty while none does. Raises SweepError where this machine
        has no clients of Slurm to begin with; one that is missing later is no answer.
        """
        config = self._shown_config()
        if config is None and shutil.which("scontrol") is None:
            raise SweepError("scontrol is not on PATH: this machine has no Slurm clients")
        return setting(config or "", "ClusterName")

    def script(self, request: PilotRequest) -> str:
        """The script that would be submitted. Changes nothing."""
        return self._submission(request).script()

    def submit(self, request: PilotRequest) -> str:
        """Submit the pilot; returns its job id.

        Raises SubmitError with Slurm's message. After ``retry=True`` the job may exist: ask ``find`` first.
        """
        job = self._submission(request).submit(run_pilot, self._main, str(self._sweep_dir), request.name)
        return str(job.job_id)

    def poll(self, job_ids: Sequence[str]) -> Mapping[str, JobStatus]:
        """The jobs' states: one squeue; for the ids that it does not list one sacct; and where that states no end, the
        controller is asked for each: it says so where it knows no such job.
        """
        if not job_ids:
            return {}
        listed, error = self._jobs(["squeue", "--me", "-r", "-t", "all", "-o"], SQUEUE_FORMAT)
        if listed is None:
            return dict.fromkeys(job_ids, JobStatus(state=JobState.UNKNOWN, reason=error))
        ended: dict[str, JobStatus] = {}
        # Those of the others whose end accounting states. One whose end slurmdbd missed stays RUNNING there for ever
        # ("runaway" in sacctmgr's terms): that says nothing.
        others = [job_id for job_id in job_ids if job_id not in listed]
        for ids in _chunks(others) if self._has_accounting() else ():
            stated, _ = self._jobs(["sacct", "-X", "-p", "-D", "-j", ",".join(ids), "-o"], SACCT_FORMAT)
            ended |= {job_id: job for job_id, job in (stated or {}).items() if job.state is JobState.GONE}
        known = ended | listed
        unknown = JobStatus(state=JobState.UNKNOWN)
        for job_id in [job_id for job_id in job_ids if job_id not in known][:MOST_SHOWN]:
            known[job_id] = self._shown(job_id)
            if known[job_id].state is JobState.UNKNOWN:
                break
        return dict.fromkeys(job_ids, unknown) | known

    def find(self, token: str) -> tuple[JobState, str | None]:
        """The job whose name is the token. (GONE, None): Slurm reports none that lives, or ended within a day.

        With accounting, absence from squeue is no such answer: it forgets a job soon after its end. A job that
        ended within its first second may be missing in both (seen on 22.05: its eligible time stays Unknown, and
        sacct's search by name skips it); such a job started no attempt.
        """
        listed, _ = self._jobs(["squeue", "--me", "-r", "-t", "all", f"--name={token}", "-o"], SQUEUE_FORMAT, token)
        accounting = self._has_accounting() if listed == {} else False
        if accounting:  # no further back: some sites refuse it (slurmdbd.conf, MaxQueryTimeRange)
            command = ["sacct", "-X", "-p", "-D", f"--name={token}", "--starttime=now-1days", "-o"]
            listed, _ = self._jobs(command, SACCT_FORMAT, token)
        if listed is None or accounting is None:
            return JobState.UNKNOWN, None
        job_id, status = first_live(listed.items()) or (None, None)
        return JobState.GONE if accounting or status is None else status.state, job_id

    def cancel(self, job_ids: Sequence[str]) -> None:
        """scancel: SIGTERM, and SIGKILL after the cluster's KillWait. Jobs that have ended already are no error.

        Raises SubmitError where Slurm does not answer.
        """
        for ids in _chunks(job_ids):
            done = _run(["scancel", "--quiet", *ids], QUERY_TIMEOUT_S)
            if done.returncode and "Invalid job id" not in done.stderr:
                raise SubmitError(_message_of(done), retry=True)

    def _submission(self, request: PilotRequest) -> _Submission:
        site, config = self._site.part(request.node_group), (self._site.segment and self._shown_config()) or ""
        stated = (setting(config, "TopologyPlugin"), setting(config, "SLURM_VERSION"))
        return _Submission(site, request, self._sweep_dir, segment_option(site.segment, request.nodes, *stated))

    def _shown(self, job_id: str) -> JobStatus:
        """What the controller itself says of one job; GONE where it knows no such job."""
        answer, error = self._ask(["scontrol", "--oneliner", "show", "job", job_id])
        if answer is None:
            state = JobState.GONE if "Invalid job id specified" in error else JobState.UNKNOWN
            return JobStatus(state=state, reason="" if state is JobState.GONE else error)
        return shown(answer, job_id)

    def _has_accounting(self) -> bool | None:
        """Whether the cluster keeps accounts; None while unknown."""
        config = self._shown_config()
        return None if config is None else setting(config, "AccountingStorageType") == "accounting_storage/slurmdbd"

    def _shown_config(self) -> str | None:
        """The cluster's configuration; None while the controller does not answer. Asked until it does, as a whole."""
        if self._config is None:
            answer, _ = self._ask(["scontrol", "show", "config"])
            whole = answer and setting(answer, "AccountingStorageType") and setting(answer, "ClusterName")
            self._config = answer if whole else None
        return self._config

    def _jobs(self, command: Sequence[str], form: str, token: str = "") -> tuple[dict[str, JobStatus] | None, str]:
        """The jobs in an answer to a query in that form, or None and why there is no whole answer to it. ``token``: the
        name of all of them.
        """
        answer, error = self._ask([*command, form])
        listed = None if answer is None else parse(answer, form)
        if listed is None or (token and any(job.name != token for job in listed.values())):
            return None, error or f"{command[0]}'s answer is not whole"
        return listed, ""

    def _ask(self, command: Sequence[str]) -> tuple[str | None, str]:
        """The client's output, or None and the error text where it did not answer."""
        done = _run(command, QUERY_TIMEOUT_S)
        return (None, _message_of(done)) if done.returncode else (done.stdout, "")


REWRITTEN = dict.fromkeys(("%j", "%t", "%A", "%a"), "submitit would replace by a number") | {
    "\\": "some versions of Slurm leave out of the paths of a job's output"
}
"""what a sweep's path must not hold -> what would become of it"""


class _Submission(submitit.SlurmExecutor):  # type: ignore[misc]
    """submitit's executor for one pilot. One job each, never an array: there submitit drops subclasses."""

    def __init__(self, site: Site, request: PilotRequest, sweep_dir: Path, further: Sequence[str]) -> None:
        super().__init__(folder=sweep_dir / "pilots" / request.name, max_num_timeout=0)
        self._site = site
        self._request = request
        self._further = further
        for pattern, effect in REWRITTEN.items():
            if pattern in str(self.folder):
                fact = f"the path holds {pattern}, which {effect}"
                raise SweepError(Mistake(fact, file=str(sweep_dir), remedy="use another --dir"))

    @classmethod
    def affinity(cls) -> int:
        """Available: a dry run renders scripts on machines without Slurm too."""
        return 2

    def script(self) -> str:
        """The whole script: submitit's own command, with the import path of an installed one. The job itself renames
        the pickle to what submitit's job side looks for.

        submitit renames it after sbatch has answered: a launcher killed in between would leave a job that
        waits a minute for its function and fails.
        """
        python = self._site.python or sys.executable
        words = module_command("submitit.core._submit", str(self.folder), python=python, options=("-u",))
        pickle, of_job = shell_word(str(self.folder / PICKLE)), shell_word(str(self.folder))
        return render_pilot(
            self._site,
            self._request,
            str(self.folder),
            command=shell_words(words),
            further=self._further,
            before=[f'cp {pickle} {of_job}/"$SLURM_JOB_ID"_submitted.pkl'],
        )

    def _internal_process_submissions(
        self, delayed: Sequence[submitit.core.utils.DelayedSubmission]
    ) -> list[submitit.Job[Any]]:
        (submission,) = delayed
        self.folder.mkdir(mode=0o700, exist_ok=True)  # never the sweep directory, which may be away
        submission.set_timeout(self._request.time_limit_s // 60, 0)
        aside = self.folder / f".{PICKLE}"
        submission.dump(aside)
        aside.rename(self.folder / PICKLE)
        script = self.folder / SCRIPT
        write_derived(script, self.script())
        done = _run(["sbatch", "--parsable", str(script)], SUBMIT_TIMEOUT_S)
        if done.returncode:
            message = _message_of(done)
            retry = done.returncode == _NO_ANSWER or may_work_later(message)
            explanation = meaning(message) if retry else ""
            raise SubmitError(f"{explanation} ({message})" if explanation else message, retry=retry)
        job_id = job_id_of(done.stdout)
        if job_id is None:
            raise SubmitError(f"sbatch printed no job id: {done.stdout.strip()[:500]!r}", retry=True)
        return [self.job_class(folder=self.folder, job_id=job_id, tasks=[0])]


_NO_ANSWER = -1000


def _run(command: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a client of Slurm, bounded, in an environment that neither filters its output nor changes its job."""
    try:
        return subprocess.run(
            command,
            capture_output=True,
            check=False,
            text=True,
            errors="replace",
            timeout=timeout_s,
            env=clean_environment(os.environ),
        )
    except subprocess.TimeoutExpired as late:
        stderr = late.stderr.decode(errors="replace").strip() if isinstance(late.stderr, bytes) else ""
        message = f"{command[0]} did not answer within {timeout_s:.0f} s; it may have accepted the request"
        return subprocess.CompletedProcess(command, _NO_ANSWER, "", f"{message}. {stderr}".strip())
    except OSError as error:  # an upgrade replaces them, their file system does not answer
        return subprocess.CompletedProcess(command, _NO_ANSWER, "", f"{command[0]} cannot be run: {error.strerror}")


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without variables that change a submission or filter output, except those that locate Slurm."""
    own = {"SLURM_TIME_FORMAT": "%s"}  # unix seconds: the login node's time zone does not matter
    return {k: v for k, v in environment.items() if k in _RETAINED or not k.startswith(_FILTERS)} | own


def _message_of(done: subprocess.CompletedProcess[str]) -> str:
    """Slurm's message, on one line."""
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return "; ".join(lines)[:1000] or f"{done.args[0]} exited with {done.returncode}"


def _chunks(job_ids: Sequence[str]) -> list[Sequence[str]]:
    return [job_ids[start : start + IDS_PER_COMMAND] for start in range(0, len(job_ids), IDS_PER_COMMAND)]
