"""One run of the doctor: the login node, then the nodes by a pilot of its own; its report and its files."""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bench_workloads.checks.reading import COMMAND_S, read_all
from sweep.checks.check import Check, CheckResult, Json, Reading, Stated, evaluate, readers, result
from sweep.checks.login import LOGIN, READ, SLURM
from sweep.checks.node import node_checks
from sweep.checks.speeds import Answer
from sweep.doctor.evaluation import evaluate_answers, nodes_of, pair_rows
from sweep.doctor.login_readers import LoginReaders
from sweep.doctor.measured import measured_rates, write_measured
from sweep.doctor.report import Report
from sweep.doctor.request import PILOT, Answers, Request
from sweep.errors import Mistake, SweepError
from sweep.executors.executor import Executor, JobState, PilotRequest, SubmitError
from sweep.files import remove_empty, write_whole
from sweep.inputs.site import Site
from sweep.pilot.job_spec import JobSpec, Limits
from sweep.plugins import CHECK, EXECUTOR, load_object
from sweep.store.directory import last_output, make_directory

REPORT = "report.json"
LEADER = "sweep.doctor.leader:main"
POLL_S = 0.2
JOB_POLL_S = 5.0
TIER_S = {"node": 60.0, "perf": 180.0, "pair": 300.0, "all-nodes": 600.0}
"""wall time of the pilot per tier, generously: it ends as soon as it is done"""
START_S = 300.0
GONE_TWICE = 2
PATIENCE_S = COMMAND_S + 1.0
"""a reader runs one command of at most COMMAND_S; a file system that hangs is given up, too"""

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

    @property
    def node_tiers(self) -> tuple[str, ...]:
        """The tiers that need nodes."""
        return tuple(tier for tier in self.tiers if tier != "login")


def examine(options: DoctorOptions, directory: Path, progress: Progress) -> Report:
    """Check, evaluate and write. ``directory``: each run on nodes has its own folder in it."""
    site, began_at = options.site, time.time()
    more = CHECK.every()
    results: list[CheckResult] = []
    seconds: dict[str, float] = {}
    if "login" in options.tiers:
        began = time.monotonic()
        login = [check for check in more if check.tier == "login"]
        results += check_login(site, options.executor, directory, login)
        seconds["login"] = round(time.monotonic() - began, 1)
    report = Report(site=site.name, gpu=site.gpu, nodes=(), results=tuple(results), began_at=began_at, seconds=seconds)
    if not options.node_tiers:
        return report
    missing = [above for above in (directory.absolute(), *directory.absolute().parents) if not above.exists()]
    folder = run_folder(directory, began_at)
    try:
        answers, problem = run_on_nodes(options, folder, more, progress)
    except OSError as error:
        error.filename = error.filename or str(folder)
        if not any(folder.glob("pilots/*/started")):
            shutil.rmtree(folder, ignore_errors=True)
            remove_empty(missing)
        raise
    stated = Stated(gpu=site.gpu, gpus_per_node=site.gpus_per_node, nodes=options.nodes)
    found = evaluate_answers(answers, node_checks(more, site.gpu), stated)
    tiers = {one["tier"]: one["seconds"] for one in answers if one["kind"] == "tier"}
    report = replace(
        report,
        nodes=tuple(nodes_of(answers)),
        results=(*results, *found),
        seconds={**seconds, **tiers},
        pairs=tuple(pair_rows(answers)),
        problem=problem,
    )
    return _written(report, answers, options, folder)


def _written(report: Report, answers: list[Answer], options: DoctorOptions, folder: Path) -> Report:
    """The run's files, and what was measured next to the site."""
    written = [str(folder / REPORT)]
    rates = measured_rates(answers, report.exclude, report.began_at)
    if rates is not None:
        site = options.site_file or folder / "site.yaml"
        path = site.with_suffix(f".measured{site.suffix}")
        write_measured(rates, path)
        written.append(str(path))
        report = replace(report, rates=json.loads(json.dumps(asdict(rates))))
    report = replace(report, written=tuple(written))
    write_whole(folder / REPORT, json.dumps(report.as_json(), indent=1))
    return report


def run_folder(directory: Path, at: float) -> Path:
    """A new folder for a run, named by the time at which it began."""
    directory.mkdir(parents=True, exist_ok=True)
    name = time.strftime("%Y%m%d-%H%M%S-", time.localtime(at))
    return Path(tempfile.mkdtemp(prefix=name, dir=directory.absolute()))


def check_login(site: Site, executor: str, directory: Path, more: Sequence[Check] = ()) -> list[CheckResult]:
    """Every check of the tier here. ``directory``: where sweeps go. ``more``: of other packages."""
    checks = [check for check in (*LOGIN, *more) if executor == "slurm" or check not in SLURM]
    built_in = LoginReaders(site, directory)

    def function(reader: str) -> Callable[[], Json]:
        module, _, name = reader.partition(":")
        found: Callable[[], Json] = getattr(built_in, name) if module == READ else load_object(reader)
        return found

    found = read_all(readers(checks), PATIENCE_S, function)
    stated, host = Stated(gpu=site.gpu, gpus_per_node=site.gpus_per_node), socket.gethostname()
    return [
        result(one.name, one.tier, host, evaluate(one, Reading.of(found[one.reader]), stated), one.remedy)
        for one in checks
    ]


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
    time_limit_s = min(START_S + sum(TIER_S[tier] for tier in options.node_tiers), site.pilot_time)
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
    Request(tiers=options.node_tiers, readers=readers(node_checks(more, site.gpu))).write(folder)
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
