"""`sweep import` and `sweep replay`: results measured elsewhere; a search replayed on recorded results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from sweep.cli.best import show_best
from sweep.cli.command import InputPath, OutputPath, SweepCommand
from sweep.cli.options import Share, json_option
from sweep.cli.progress_text import plural
from sweep.cli.sources import results_of


@click.command("import", cls=SweepCommand, short_help="Foreign results (CSV, Parquet) into the record schema.")
@click.argument("file", type=InputPath())
@click.option("--map", "map_file", type=InputPath(), help="Map of columns (YAML).")
@click.option(
    "--out", type=OutputPath(), help="Default: FILE's name with the ending .results.parquet, in this directory."
)
@json_option
def import_results(file: Path, map_file: Path | None, out: Path | None, as_json: bool) -> int:
    """Convert a foreign table to the record schema, for heatmap, report, replay and compare.

    Units are checked, unknown columns are retained, MFU is recomputed from tokens/s and the model's shape by one named
    convention; the source's own MFU stays as reported_mfu. Implausible rows are marked as suspect.
    Without a map the table's columns are those of a record.

    \b
    Examples:
      sweep import playbook_runs.csv --map examples/import/playbook.yaml
      sweep import runs.parquet --out results.parquet --json
    """
    from sweep.foreign.files import import_file

    target = out or Path(f"{file.stem}.results.parquet")
    done = import_file(file, map_file, target)
    if as_json:
        click.echo(json.dumps(done.document()))
        return 0
    for note in done.shown():
        click.echo(note, err=True)
    outcomes = ", ".join(f"{count} {word}" for word, count in done.outcomes.items())
    click.echo(f"{target}: {plural(done.rows, 'record')} ({outcomes}), {len(done.suspects)} suspect", err=True)
    show_best([target])
    click.echo(f"next: `sweep heatmap {target}` draws it, `sweep report {target}` writes a page", err=True)
    return 0


@click.command(cls=SweepCommand, short_help="How a search strategy would have done on recorded results.")
@click.argument("results", metavar="DIR_OR_PARQUET", type=InputPath())
@click.option("--strategy", "name", default="guided", show_default=True, help="An unknown name lists all.")
@click.option(
    "--budget", type=Share(whole=True), default="100%", show_default=True, help="Runs that may be measured: 10%, 0.1."
)
@click.option("--model", "models", multiple=True, help="Only this model's runs. Repeatable.")
@click.option("--fit", help="Instead of a search: learn from the runs for which this holds, such as 'nodes <= 2'.")
@click.option("--predict", help="With --fit: and predict those for which this holds, such as 'nodes > 2'.")
@json_option
def replay(
    results: Path,
    name: str,
    budget: float,
    models: tuple[str, ...],
    fit: str | None,
    predict: str | None,
    as_json: bool,
) -> int:
    """Run a search strategy against results, of a sweep or an import, as if live.

    It sees a result only after requesting the run.

    Reports per cell and overall: runs spent, failures avoided, successes rejected, regret against the best by
    tokens/s/GPU, and runs needed to come within 2 %.

    \b
    Examples:
      sweep replay results.parquet --strategy guided --budget 10%
      sweep replay sweeps/first --strategy random
      sweep replay results.parquet --strategy prune --model 8B --json
      sweep replay results.parquet --fit 'nodes <= 2' --predict 'nodes > 2'
    """
    from sweep.errors import Mistake, SweepError
    from sweep.foreign.files import read_recorded
    from sweep.search.budget import Budget
    from sweep.search.forecast import forecast, selected
    from sweep.search.replay import replay as run_replay
    from sweep.search.replay import report
    from sweep.search.strategies import strategy_named

    strategy = strategy_named(name)
    if (fit is None) != (predict is None):
        raise SweepError(Mistake("one of --fit and --predict without the other", path="--fit", remedy="give both"))
    place, sweep = results_of(results)
    recorded = read_recorded(place if sweep is None else sweep.results, models)
    if fit is not None and predict is not None:
        chosen = (selected(recorded.candidates, text, path) for text, path in ((fit, "--fit"), (predict, "--predict")))
        forecasts = forecast(recorded, *chosen)
        click.echo(json.dumps(forecasts) if as_json else "\n".join(_forecast_lines(forecasts)))
        return 0
    runs = max(1, int(budget * len(recorded.candidates)))
    document = report(run_replay(recorded, strategy, Budget(runs=runs)))
    if as_json:
        click.echo(json.dumps(document))
    else:
        click.echo("\n".join(_lines(document)))
    return 0


def _lines(document: dict[str, Any]) -> list[str]:
    """The report as a table."""
    head = f"{'model':>12} {'nodes':>5} {'runs':>5} {'spent':>5} {'regret':>8} {'to 2 %':>6} {'rejected':>8}"
    lines = [head]
    for cell in document["cells"]:
        regret, runs = _percent(cell["regret"]), cell["runs_to_within_2pct"] or "-"
        left = f"{cell['model']:>12} {cell['nodes']:>5} {cell['runs_total']:>5} {cell['runs_spent']:>5}"
        lines.append(f"{left} {regret:>8} {runs:>6} {cell['successes_rejected']:>8}")
    overall = document["overall"]
    lines.append(f"{overall['runs_spent']} of {overall['runs_total']} runs spent")
    shares = ("failures_avoided_share", "mean_regret", "worst_regret", "runs_to_within_2pct_share")
    lines += [f"{key.replace('_', ' ')}: {_percent(overall[key])}" for key in shares]
    return lines + [f"{key.replace('_', ' ')}: {overall[key]}" for key in ("successes_rejected", "cell_bests_rejected")]


def _forecast_lines(document: dict[str, Any]) -> list[str]:
    """Errors of the predicted cells as a table."""
    names = ("mape", "bias", "spearman", "top_1_regret", "top_3_regret")
    lines = [f"{'model':>12} {'nodes':>5} {'runs':>5} " + " ".join(f"{name.replace('_', ' '):>12}" for name in names)]
    overall = {"model": "all", "nodes": "", "runs": document["overall"]["runs_predicted"], **document["overall"]}
    for cell in [*document["cells"], overall]:
        shown = (
            f"{cell[name]:.2f}" if name == "spearman" and cell[name] is not None else _percent(cell.get(name))
            for name in names
        )
        left = f"{cell['model']:>12} {cell['nodes']:>5} {cell['runs']:>5}"
        lines.append(f"{left} " + " ".join(f"{value:>12}" for value in shown))
    return lines


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"
