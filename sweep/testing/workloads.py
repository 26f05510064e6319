"""Whether a workload declares itself as ``sweep.contract`` says, and whether a run of it is recorded as ok."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from sweep.contract import Run
from sweep.errors import SweepError
from sweep.inputs.load import parse_grid
from sweep.inputs.yaml_lines import dump
from sweep.library.launch import launch
from sweep.outcomes import Outcome
from sweep.plugins import WORKLOAD
from sweep.records.collect import read_records
from sweep.testing.declarations import declaration_findings, registration_findings
from sweep.testing.examples import example_run
from sweep.testing.findings import require_none


def check_workload(name: str, run: Run | None = None, *, timeout_s: float = 120.0) -> None:
    """Check a workload's declaration, and measure one run of it on this machine as `sweep launch` does.

    ``name``: under which it is registered. ``run``: what is run, by default ``example_run(workload)``, a tiny model on
    two ranks. ``timeout_s``: of the run. Raises ConformanceError; SweepError for an unknown name.
    """
    workload = WORKLOAD.find(name)
    asked = example_run(workload) if run is None else run
    findings = [*declaration_findings(workload, asked), *registration_findings(name)]
    if workload.name != name:
        findings.append(f"name: it is registered as {name!r} and named {workload.name!r}")
    if not findings:  # a wrong declaration explains most of what a run would show
        findings += measured_findings(asked, timeout_s)
    require_none(f"the workload {name}", findings)


def measured_findings(run: Run, timeout_s: float) -> Iterator[str]:
    """How the attempts of a run that should succeed are recorded, where that is not ok."""
    with tempfile.TemporaryDirectory(prefix="sweep-testing-") as folder:
        directory = Path(folder, "sweep")
        try:
            launch(
                parse_grid(grid_of(run, timeout_s), "the grid of the run that is checked"),
                directory=directory,
                executor="local",
            )
            records = read_records(directory)
        except SweepError as error:
            yield f"the run cannot be measured: {error}"
            return
        for record in records.to_dict("records"):
            if record["outcome"] != Outcome.OK:
                yield f"the attempt is recorded as {record['outcome']}: {record['message']}"


def grid_of(run: Run, timeout_s: float) -> str:
    """A grid with this one run, on as many CPU ranks as it has GPUs."""
    return dump(
        {
            "name": "conformance",
            "workload": run.workload,
            "params": dict(run.params),
            "env": dict(run.env),
            "models": {run.model: dict(run.shape)},
            "nodes": run.nodes,
            "sequence_length": run.sequence_length,
            "global_batch": run.global_batch_tokens,
            **vars(run.layout),
            "dtype": run.dtype,
            "compile": run.compile,
            "warmup_iterations": run.warmup_iterations,
            "iterations": run.iterations,
            "max_run_time": timeout_s,
            "strategy": "exhaustive",
            "remeasure": 0,
            "site": {"gpu": "cpu", "gpus_per_node": run.gpus_per_node},
        }
    )
