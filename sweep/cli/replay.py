"""`sweep replay`: a search strategy, or all, on recorded results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli.command import InputPath, OutputPath, SweepCommand, without_effect
from sweep.cli.names import name_option
from sweep.cli.options import Share, json_option
from sweep.cli.sources import results_of
from sweep.errors import Mistake, SweepError
from sweep.plugins import strategy_names

if TYPE_CHECKING:
    from sweep.search.replay import RecordedRun, Replayed

ALL = "all"


@click.command(cls=SweepCommand, short_help="How a search strategy would have done on recorded results.")
@click.argument("results", metavar="DIR_OR_PARQUET", type=InputPath())
@name_option(
    "--strategy", "name", kind="strategy", names=lambda: (*strategy_names(), ALL), default="guided", show_default=True,
    help="Which runs are measured, in which order; all: each, and a picture of their regret.",
)  # fmt: skip
@click.option(
    "--budget", type=Share(whole=True), default="100%", show_default=True, help="Runs that may be measured: 10%, 0.1."
)
@click.option("--no-transfer", is_flag=True, help="Each cell is searched by its own runs alone (`transfer: false`).")
@click.option("--model", "models", multiple=True, help="Only this model's runs. Repeatable.")
@click.option(
    "--out", type=OutputPath(endings=(".png", ".svg", ".pdf")),
    help="The picture of --strategy all. Default: figures/regret.png of the sweep, or next to the file.",
)  # fmt: skip
@click.option("--fit", help="Instead of a search: learn from the runs for which this holds, such as 'nodes <= 2'.")
@click.option("--predict", help="With --fit: and predict those for which this holds, such as 'nodes > 2'.")
@json_option
def replay(
    results: Path,
    name: str,
    budget: float,
    no_transfer: bool,
    models: tuple[str, ...],
    out: Path | None,
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
      sweep replay sweeps/first --strategy all
      sweep replay results.parquet --budget 10% --no-transfer
      sweep replay results.parquet --strategy prune --model 8B --json
      sweep replay results.parquet --fit 'nodes <= 2' --predict 'nodes > 2'
    """
    from sweep.foreign.files import read_recorded
    from sweep.search.replay import report

    if (fit is None) != (predict is None):
        raise SweepError(Mistake("one of --fit and --predict without the other", path="--fit", remedy="give both"))
    if name != ALL and (mistakes := without_effect(("out",), "without --strategy all")):
        raise SweepError(mistakes)
    if fit is not None and (mistakes := without_effect(("no_transfer",), "with --fit")):
        raise SweepError(mistakes)
    place, sweep = results_of(results)
    recorded = read_recorded(place if sweep is None else sweep.results, models)
    recorded = replace(recorded, candidates=replace(recorded.candidates, transfer=not no_transfer))
    if fit is not None and predict is not None:
        return _forecast(recorded, fit, predict, as_json)
    if name != ALL:
        document = report(_replayed(recorded, name, budget))
        click.echo(json.dumps(document) if as_json else "\n".join(_lines(document)))
        return 0
    done = {each: _replayed(recorded, each, budget) for each in strategy_names()}
    picture = out or (place.parent if sweep is None else sweep.figures) / "regret.png"
    _draw(done, recorded, picture)
    if as_json:
        click.echo(json.dumps({**{each: report(found) for each, found in done.items()}, "picture": str(picture)}))
        return 0
    click.echo("\n".join(_comparison({each: report(found)["overall"] for each, found in done.items()})))
    click.echo(str(picture))
    return 0


def _forecast(recorded: RecordedRun, fit: str, predict: str, as_json: bool) -> int:
    from sweep.search.forecast import forecast, selected

    chosen = (selected(recorded.candidates, text, path) for text, path in ((fit, "--fit"), (predict, "--predict")))
    forecasts = forecast(recorded, *chosen)
    click.echo(json.dumps(forecasts) if as_json else "\n".join(_forecast_lines(forecasts)))
    return 0


def _replayed(recorded: RecordedRun, name: str, budget: float) -> Replayed:
    from sweep.search.budget import Budget
    from sweep.search.replay import replay as run_replay
    from sweep.search.strategies import strategy_named

    runs = max(1, int(budget * len(recorded.candidates)))
    return run_replay(recorded, strategy_named(name), Budget(runs=runs))


def _draw(done: Mapping[str, Replayed], recorded: RecordedRun, path: Path) -> None:
    from analysis.figures.regret import draw
    from analysis.heatmap.draw import save_figure
    from sweep.search.replay import mean_regrets

    curves = {name: mean_regrets(found) for name, found in done.items()}
    cells = len(recorded.candidates.cell_names)
    save_figure(draw(curves, runs=len(recorded.candidates), cells=cells), path)


def _comparison(overall: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line per strategy."""
    lines = [f"{'strategy':>12} {'spent':>6} {'mean regret':>12} {'worst':>8} {'within 2% after':>17}"]
    for name, found in overall.items():
        regrets = f"{_percent(found['mean_regret']):>12} {_percent(found['worst_regret']):>8}"
        lines.append(
            f"{name:>12} {found['runs_spent']:>6} {regrets} {_percent(found['runs_to_within_2pct_share']):>17}"
        )
    return lines


def _lines(document: dict[str, Any]) -> list[str]:
    """One strategy's report as a table."""
    head = f"{'model':>12} {'nodes':>5} {'runs':>5} {'spent':>5} {'regret':>8} {'to 2%':>6} {'rejected':>8}"
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
    names = ("mape", "median_error", "sibling_mape", "bias", "spearman", "top_1_regret", "top_3_regret")
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
