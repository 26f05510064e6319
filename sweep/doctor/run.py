"""The login node's side of a doctor run on nodes: submits its pilot, follows its answers, ends it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sweep.checks.check import Check, readers
from sweep.checks.node import node_checks
from sweep.checks.speeds import Answer
from sweep.doctor.request import PILOT, Answers, Request
from sweep.errors import Mistake, SweepError
from sweep.executors.executor import Executor, JobState, PilotRequest, SubmitError
from sweep.inputs.site import Site
from sweep.pilot.job_spec import JobSpec, Limits
from sweep.plugins import EXECUTOR
from sweep.store.directory import last_output, make_directory

LEADER = "sweep.doctor.leader:main"
POLL_S = 0.2
JOB_POLL_S = 5.0
TIER_S = {"node": 60.0, "perf": 180.0, "pair": 300.0, "all-nodes": 600.0}
"""wall time of the pilot per tier, generously: it ends as soon as it is done"""
START_S = 300.0
GONE_TWICE = 2

Progress = Callable[[Sequence[Answer]], None]


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """What the user asks for."""

    site: Site
    site_file: Path | None
    """measured rates go next to it; None: into the run's directory"""
    executor: str
    tiers: tuple[str, ...]
    nodes: int
    names: tuple[str, ...] = ()
    """these nodes; empty: any"""
    every_pair: bool = False

    @property
    def node_tiers(self) -> tuple[str, ...]:
        """The tiers that need nodes."""
        return tuple(tier for tier in self.tiers if tier != "login")


def run_on_nodes(
    options: DoctorOptions, folder: Path, more: Sequence[Check], progress: Progress
) -> tuple[list[Answer], str]:
    """Submit, follow to the end; the answers, and why they are not complete (empty: they are).

    ``more``: checks of other packages.
    """
    site = options.site
    if options.names and options.executor == "slurm":
        site = site.model_copy(update={"sbatch": (*site.sbatch, f"--nodelist={','.join(options.names)}")})
    request = _prepare(options, folder, more)
    chosen: Executor = EXECUTOR.find(options.executor)(site, folder, pilot_main=LEADER)
    try:
        job = chosen.submit(request)
    except SubmitError as error:
        raise SweepError(Mistake(f"the scheduler rejects the pilot: {error}", path="--site")) from error
    try:
        return _follow(chosen, job, folder, progress)
    finally:
        with suppress(SubmitError):
            chosen.cancel([job])


def _prepare(options: DoctorOptions, folder: Path, more: Sequence[Check]) -> PilotRequest:
    """The run's directory with what its pilot needs."""
    site, directory = options.site, folder / "pilots" / PILOT
    directory.mkdir(parents=True, mode=0o700)
    make_directory(folder, 0o700)
    time_limit_s = START_S + sum(TIER_S[tier] for tier in options.node_tiers) * (4 if options.every_pair else 1)
    time_limit_s = min(time_limit_s, site.pilot_time)
    token = f"doctor{uuid.uuid4().hex[:12]}-{PILOT}"
    JobSpec(
        name=PILOT,
        token=token,
        sweep_name="doctor",
        nodes=options.nodes,
        gpus_per_node=site.gpus_per_node,
        gpu=site.gpu,
        time_limit_s=int(time_limit_s),
        executor=options.executor,
        scratch=site.scratch,
        container_prefix=site.container_prefix,
        interface=site.interface,
        port_range=site.port_range,
        srun=site.srun,
        domain_nodes=site.domain_nodes,
        limits=Limits(start_s=120.0, first_iteration_s=60.0, steady_s=60.0, attempt_s=300.0),
    ).write(directory)
    Request(
        tiers=options.node_tiers,
        readers=tuple(readers(node_checks(more, site.gpu))),
        every_pair=options.every_pair,
    ).write(folder)
    return PilotRequest(token=token, name=PILOT, nodes=options.nodes, time_limit_s=int(time_limit_s))


def _follow(executor: Executor, job: str, folder: Path, progress: Progress) -> tuple[list[Answer], str]:
    """Until the pilot's last line, or until its job is gone without one."""
    answers, gone, poll_at = Answers(folder), 0, time.monotonic() + JOB_POLL_S
    while True:
        found = answers.read()
        progress(found)
        if found and found[-1]["kind"] == "end":
            return found, found[-1]["problem"]
        if gone >= GONE_TWICE:
            output = last_output(folder / "pilots" / PILOT)
            return found, f"the pilot's job ended before it was done; its last output: {output}"
        if time.monotonic() >= poll_at:
            gone = gone + 1 if executor.poll([job])[job].state is JobState.GONE else 0
            poll_at = time.monotonic() + (0.0 if gone else JOB_POLL_S)
        time.sleep(POLL_S)
