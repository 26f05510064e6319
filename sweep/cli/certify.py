"""`sweep certify`: a suite of workloads measured here and checked against a baseline."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli.command import InputPath, OutputPath, SweepCommand
from sweep.cli.options import Share, json_option, overrides_option, site_option
from sweep.cli.progress_text import plural
from sweep.cli.sources import results_of
from sweep.errors import Mistake, SweepError
from sweep.library.sources import METRIC
from sweep.library.winners import SIMULATED, layout_text

if TYPE_CHECKING:
    import pandas as pd

    from analysis.compare.certificate import Certificate, CheckedWorkload
    from sweep.inputs.grid import Grid
    from sweep.inputs.site import Site

WITHIN = 0.05
"""A cluster is certified at 95 % of its baseline, as NVIDIA's DGX Cloud benchmarking recipes do"""


@click.command(cls=SweepCommand)
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
    target = directory or Path("sweeps") / grid.name
    _check_baseline(good, grid, site, baseline, target)
    words = [str(suite), "--dir", str(target), *(word for one in overrides for word in ("-o", one))]
    words += ["--site", site_given] if site_given is not None else []
    words += ["--executor", executor] if executor is not None else []
    words += ["--yes"] * yes
    began = time.time()
    with launch.make_context("launch", words, parent=ctx) as launching:
        code = int(launch.invoke(launching))
    if code not in (0, 1):  # 1: runs failed, which the certificate shows
        return code
    return _check(good, baseline, target, began, within, as_json)


def _records(source: Path) -> pd.DataFrame:
    import analysis
    from analysis.compare import columns_needed

    return analysis.load(results_of(source)[0], [*columns_needed(), "started_at"])


def _check_baseline(good: pd.DataFrame, grid: Grid, site: Site, baseline: Path, target: Path) -> None:
    """Raises SweepError where the baseline is the suite's own directory, or has none of its runs."""
    from analysis.compare.sides import SAME, Side, key_of, with_columns
    from analysis.metrics import metric_named
    from sweep.planning.build import build

    if target.resolve() in (baseline.resolve(), *baseline.resolve().parents):
        fact = "the suite would be checked against its own results"
        raise SweepError(Mistake(fact, file=str(baseline), remedy="another --dir"))
    planned = build(grid, site).table.to_pandas()
    measured = {key_of(row, SAME) for row in Side(with_columns(good), metric_named(METRIC)).rows}
    runs = planned[planned["status"] == "run"].to_dict("records")
    if not any(key_of({str(k): v for k, v in row.items()}, SAME) in measured for row in runs):
        fact = f"none of the {plural(len(runs), 'run')} of the suite is measured in the baseline"
        raise SweepError(Mistake(fact, file=str(baseline), remedy="a baseline of the same suite"))


def _check(good: pd.DataFrame, baseline: Path, target: Path, began: float, within: float, as_json: bool) -> int:
    """Print the certificate of the measured suite; 0 if it passed."""
    import analysis
    from analysis.compare import compare
    from analysis.compare.certificate import CONFIGURATION, certificate
    from analysis.derive.best import succeeded

    now = _records(target)
    plan = analysis.load_plan(target, CONFIGURATION)
    assert plan is not None  # a sweep directory has one
    compared = compare(good, now, anyway=True) if _share_a_cell(good[succeeded(good)], now[succeeded(now)]) else None
    found = certificate(plan[plan["status"] == "run"], now, compared, within)
    earlier = bool(len(now)) and not (now["started_at"] >= began).any()
    simulated = bool(now["simulated"].fillna(False).any() or good["simulated"].fillna(False).any())
    if as_json:
        about = {
            "directory": str(target),
            "baseline": str(baseline),
            "simulated": simulated,
            "measured_now": not earlier,
        }
        click.echo(json.dumps({**about, "passed": found.passed, **found.document()}))
    else:
        note = [f"nothing was measured now: {target} had ended before; another --dir measures again"] * earlier
        click.echo("\n".join([*note, *_lines(found, simulated)]))
    return 0 if found.passed else 1


def _share_a_cell(a: pd.DataFrame, b: pd.DataFrame) -> bool:
    cells = [set(zip(side["model"], side["nodes"], strict=True)) for side in (a, b)]
    return bool(cells[0] & cells[1])


def _lines(found: Certificate, simulated: bool) -> list[str]:
    from analysis.compare.certificate import FAIL, PASS, UNDECIDED

    lines = [SIMULATED] if simulated else []
    lines += [_line(one) for one in found.workloads]
    counts = ", ".join(f"{found.count(verdict)} {verdict}" for verdict in (PASS, FAIL, UNDECIDED))
    word = "certified" if found.passed else "not certified"
    checked = plural(len(found.workloads), "workload")
    lines.append(f"{word}: {checked} within {100 * found.within:.3g} % of the baseline: {counts}")
    if any(one.verdict == UNDECIDED and one.change is not None for one in found.workloads):
        lines.append("undecided: the interval includes the limit; more `repeats` in the suite narrow it")
    return lines


def _line(one: CheckedWorkload) -> str:
    from analysis.metrics import number

    head = f"{one.verdict:9} {one.model} on {one.nodes}: {layout_text(one.layout)}"
    if one.baseline is None or one.value is None or one.reason:
        return f"{head}: {one.reason}"
    change = "" if one.change is None else one.change.text()
    return f"{head}: {number(one.baseline)} -> {number(one.value)} tok/s/GPU {change}"
