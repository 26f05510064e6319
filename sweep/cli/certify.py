"""`sweep certify`: a suite of workloads measured here and checked against a baseline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli.command import InputPath, OutputPath, SweepCommand
from sweep.cli.history import change_text
from sweep.cli.options import METRIC, Share, json_option, overrides_option, site_option
from sweep.cli.progress_text import plural
from sweep.cli.sources import results_of
from sweep.cli.winners import SIMULATED, layout_text
from sweep.errors import Mistake, SweepError

if TYPE_CHECKING:
    import pandas as pd

    from analysis.compare.certificate import Certificate, CheckedWorkload
    from sweep.inputs.grid import Grid
    from sweep.inputs.site import Site

WITHIN = 0.05
"""A cluster is certified at 95 % of its baseline, as NVIDIA's DGX Cloud benchmarking recipes do"""


@click.command(cls=SweepCommand, short_help="A suite measured and checked against a baseline: pass or fail.")
@click.argument("suite", metavar="GRID", type=InputPath())
@click.option(
    "--baseline", required=True, metavar="DIR_OR_PARQUET", type=InputPath(), help="Results of the same suite."
)
@click.option("--within", type=Share(), default=WITHIN, show_default=True, help="Slower by no more than that passes.")
@overrides_option
@site_option
@click.option("--executor", type=click.Choice(["slurm", "local"]), help="As for `launch`.")
@click.option(
    "--dir", "directory", type=OutputPath(directory=True), help="Sweep directory. Default: sweeps/<name of the grid>."
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask before anything is submitted.")
@json_option
@click.pass_context
def certify(
    ctx: click.Context,
    suite: Path,
    baseline: Path,
    within: float,
    overrides: tuple[str, ...],
    site_given: str | None,
    executor: str | None,
    directory: Path | None,
    yes: bool,
    as_json: bool,
) -> int:
    """Measure a suite of workloads and check each against a baseline: a new cluster, or one after maintenance.

    A workload passes where the 95 % interval of its change is above the tolerated slowdown, fails where it is below,
    and is undecided between. Exit 1 unless all pass. An existing directory is continued, and checked once it is done.

    \b
    Examples:
      sweep certify examples/certify.yaml --baseline good.parquet --site cluster.yaml
      sweep certify suite.yaml --baseline sweeps/january --within 3% --dir sweeps/after-maintenance --yes
    """
    from sweep.cli.launch import launch
    from sweep.inputs.load import load_inputs

    good = _records(baseline)
    grid, site = load_inputs(suite, overrides, site_given, executor)
    _check_overlap(good, grid, site, baseline)
    target = directory or Path("sweeps") / grid.name
    words = [str(suite), "--dir", str(target), *(word for one in overrides for word in ("-o", one))]
    words += ["--site", site_given] if site_given is not None else []
    words += ["--executor", executor] if executor is not None else []
    words += ["--yes"] * yes
    with launch.make_context("launch", words, parent=ctx) as launching:
        code = int(launch.invoke(launching))
    if code:
        return code
    return _check(good, _records(target), baseline, target, within, as_json)


def _records(source: Path) -> pd.DataFrame:
    import analysis
    from analysis.compare import columns_needed

    return analysis.load(results_of(source)[0], columns_needed())


def _check_overlap(good: pd.DataFrame, grid: Grid, site: Site, baseline: Path) -> None:
    """Raises SweepError where no run of the suite has a measured baseline, before anything is measured."""
    from analysis.compare.sides import SAME, Side, key_of, with_columns
    from analysis.metrics import metric_named
    from sweep.plan.build import build

    planned = build(grid, site).table.to_pandas()
    measured = {key_of(row, SAME) for row in Side(with_columns(good), metric_named(METRIC)).rows}
    runs = planned[planned["status"] == "run"].to_dict("records")
    if not any(key_of({str(k): v for k, v in row.items()}, SAME) in measured for row in runs):
        fact = f"none of the {plural(len(runs), 'run')} of the suite is measured in the baseline"
        raise SweepError(Mistake(fact, file=str(baseline), remedy="a baseline of the same suite"))


def _check(good: pd.DataFrame, now: pd.DataFrame, baseline: Path, directory: Path, within: float, as_json: bool) -> int:
    from analysis.compare import compare
    from analysis.compare.certificate import certificate

    found = certificate(compare(good, now, anyway=True), within)
    simulated = bool(now["simulated"].fillna(False).any() or good["simulated"].fillna(False).any())
    if as_json:
        document = {
            "directory": str(directory),
            "baseline": str(baseline),
            "simulated": simulated,
            "passed": found.passed,
            **found.document(),
        }
        click.echo(json.dumps(document))
    else:
        click.echo("\n".join(_lines(found, simulated)))
    return 0 if found.passed else 1


def _lines(found: Certificate, simulated: bool) -> list[str]:
    from analysis.compare.certificate import FAIL, PASS, UNDECIDED

    lines = [SIMULATED] if simulated else []
    lines += [_line(one) for one in found.workloads]
    counts = ", ".join(f"{found.count(verdict)} {verdict}" for verdict in (PASS, FAIL, UNDECIDED))
    word = "certified" if found.passed else "not certified"
    checked = plural(len(found.workloads), "workload")
    lines.append(f"{word}: {checked} within {100 * found.within:.3g} % of the baseline: {counts}")
    if found.count(UNDECIDED):
        lines.append("undecided: the interval includes the limit; more `repeats` in the suite narrow it")
    return lines


def _line(one: CheckedWorkload) -> str:
    from analysis.metrics import number

    head = f"{one.verdict:9} {one.model} on {one.nodes}: {layout_text(one.layout)}"
    if one.value is None:
        return f"{head}: {number(one.baseline)} -> {one.reason}"
    change = change_text(one.change, 0.0)
    return f"{head}: {number(one.baseline)} -> {number(one.value)} tok/s/GPU {change}".rstrip()
