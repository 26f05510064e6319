"""Whether a trainer adapter configures every axis that it declares, and reads its trainer's output."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path, PurePosixPath

from bench_workloads.trainers.adapter import SHARED_CHOICES, SHARED_PARAMS, Adapter, Launch, ParsedLine
from bench_workloads.trainers.driver.reading import NAMES
from sweep.contract import Measurement, Run
from sweep.physics.flops import CONVENTIONS
from sweep.plugins import TRAINER
from sweep.records.validity import requested
from sweep.testing.declarations import declaration_findings
from sweep.testing.examples import example_run, variants
from sweep.testing.findings import named, require_none

STEPS = 4
ODD_LINES = ("", " ", "\x00", "∞ ünïcode \ud800", "step: nan loss: inf", "9" * 10_000, "{'a': [", "100%|████| 8/8")
"""no trainer's reader may raise on any line: other libraries print too"""


def check_trainer(adapter: Adapter | str, run: Run | None = None, *, output: str = "") -> None:
    """Check an adapter without its trainer: what it writes for each axis, and what it reads from output.

    ``adapter``: the adapter, or the name under which it is registered. ``run``: what is configured, by default
    ``example_run(adapter.workload)``. ``output``: the trainer's output of at least two iterations of that run.
    Raises ConformanceError; SweepError for an unknown name.
    """
    checked = TRAINER.find(adapter) if isinstance(adapter, str) else adapter
    asked = example_run(checked.workload) if run is None else run
    findings = [*declaration_findings(checked.workload, asked), *_adapter_findings(checked)]
    if isinstance(adapter, str) and checked.name != adapter:
        findings.append(f"name: it is registered as {adapter!r}, its workload is named {checked.name!r}")
    try:
        findings += _launch_findings(checked, asked)
    except Exception as error:  # third-party code: configuring may raise anything
        findings.append(f"configure: raised {named(error)} for the run that is checked")
    try:
        findings += _reader_findings(checked, asked, output)
    except Exception as error:
        findings.append(f"reader: raised {named(error)}")
    require_none(f"the trainer adapter {checked.name}", findings)


def _adapter_findings(adapter: Adapter) -> Iterator[str]:
    params, choices = adapter.workload.params, adapter.workload.choices
    for name in sorted(SHARED_PARAMS.keys() - params.keys()):
        yield f"params: {name!r} of SHARED_PARAMS is missing"
    for name in sorted(SHARED_CHOICES.keys() - choices.keys()):
        yield f"choices: {name!r} of SHARED_CHOICES is missing"
    if not adapter.versions:
        yield "versions: states no version of the trainer"
    if adapter.convention and adapter.convention not in CONVENTIONS:
        yield f"convention: {adapter.convention!r} is none of {', '.join(CONVENTIONS)}"
    for hint in adapter.hints:
        try:
            re.compile(hint.pattern)
        except re.error as error:
            yield f"hints: {hint.pattern!r} is no regular expression: {error}"


def _launch_findings(adapter: Adapter, run: Run) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="sweep-testing-") as directory:
        launch = adapter.configure(run, directory, STEPS)
        if adapter.configure(run, directory, STEPS) != launch:
            yield "configure: gives another result for the same run"
        if left := sorted(path.name for path in Path(directory).iterdir()):
            yield f"configure: wrote {', '.join(left)} itself: return them as files"
        yield from _text_findings(launch)
        for axis, pair in variants(adapter.workload, run).items():
            try:
                first, second = (adapter.configure(one, directory, STEPS) for one in pair)
            except ValueError:
                continue  # a value that the trainer does not have
            if first == second:
                yield f"axes: {axis} is declared, but changing it changes neither files, command nor environment"


def _text_findings(launch: Launch) -> Iterator[str]:
    if not launch.program or not all(isinstance(word, str) and word for word in launch.program):
        yield f"configure: program is {launch.program!r}, not a command of texts"
    for name, text in launch.files.items():
        if not name or PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            yield f"configure: the file {name!r} is not inside the directory it was given"
        if not isinstance(text, str):
            yield f"configure: the file {name!r} is a {type(text).__name__}, not text"
    for name, value in launch.env.items():
        if not isinstance(value, str):
            yield f"configure: the variable {name} is {value!r}, not text"


def _reader_findings(adapter: Adapter, run: Run, output: str) -> Iterator[str]:
    reader = adapter.reader(run)
    for line in ODD_LINES:
        try:
            reader.read(line)
        except Exception as error:  # the point of the check
            yield f"reader: raised {named(error)} on the line {line[:40]!r}"
    lines = _read(adapter, run, output)
    if lines != _read(adapter, run, output):
        yield "reader: a second reader of the same output gives another result"
    for parsed in lines:
        yield from (f"reader: {name!r} is no name of reading.NAMES" for name in sorted(parsed.values.keys() - NAMES))
        known = {*requested(run), "pp_schedule", *(field.name for field in fields(Measurement))}
        unknown = sorted(parsed.effective.keys() - known)
        yield from (f"reader: effective has {name!r}, which a run does not have" for name in unknown)
    iterations = {parsed.iteration for parsed in lines if parsed.iteration is not None}
    if output and len(iterations) < 2:
        yield f"reader: found {len(iterations)} iterations in the output, fewer than 2"


def _read(adapter: Adapter, run: Run, output: str) -> list[ParsedLine]:
    reader = adapter.reader(run)
    return [parsed for line in output.splitlines() for parsed in reader.read(line)]
