"""One run of the doctor: the login node, then the nodes; its report and its files."""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
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
from sweep.doctor.run import DoctorOptions, Progress, run_on_nodes
from sweep.files import remove_empty, write_whole
from sweep.inputs.site import Site
from sweep.plugins import CHECK, load_object

REPORT = "report.json"


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


PATIENCE_S = COMMAND_S + 1.0
"""a reader runs one command of at most COMMAND_S; a file system that hangs is given up, too"""


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
        result(one.name, one.tier, host, evaluate(one, Reading.of(found[one.reader]), stated), one.remedy, one.source)
        for one in checks
    ]
