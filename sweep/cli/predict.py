"""`sweep predict`: the best layouts of a grid, as measured runs (of other node counts or models) predict them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli.command import InputPath, SweepCommand
from sweep.cli.options import json_option, overrides_option, site_option
from sweep.cli.sources import results_of
from sweep.contract import LAYOUT
from sweep.library.winners import SIMULATED, layout_text

if TYPE_CHECKING:
    from sweep.search.candidates import Candidates
    from sweep.search.forecast import Expected

MOST = 3
"""layouts per cell"""


@click.command(cls=SweepCommand, short_help="A grid's best layouts as measured runs predict them, with intervals.")
@click.argument("grid_file", metavar="GRID", type=InputPath())
@click.option("--from", "results", required=True, type=InputPath(), help="Results, or the directory of a sweep.")
@overrides_option
@site_option
@json_option
def predict(grid_file: Path, results: Path, overrides: tuple[str, ...], site_given: str | None, as_json: bool) -> int:
    """Predict the fastest layouts of each cell of a grid from measured runs: measure small, predict large.

    Nothing is measured. Nine of ten such predictions are meant to be within the interval.

    \b
    Examples:
      sweep predict large.yaml --from sweeps/small
      sweep predict grid.yaml -o nodes=[32,64] --from results.parquet --json | jq .cells
    """
    from sweep.errors import SweepError
    from sweep.foreign.files import read_recorded
    from sweep.inputs.load import load_inputs
    from sweep.planning.build import build, nothing_to_run
    from sweep.search.candidates import from_plan
    from sweep.search.forecast import expected_best, unlearned

    place, sweep = results_of(results)
    recorded = read_recorded(place if sweep is None else sweep.results)
    grid, site = load_inputs(grid_file, overrides, site_given, None)
    runs = build(grid, site).runs
    if not runs:
        raise SweepError(nothing_to_run(grid))
    candidates = from_plan(runs, site.hardware)
    if missing := unlearned(recorded, candidates):
        click.echo(missing, err=True)
    measured = _measured(recorded)
    if not measured:
        click.echo(f"note: no run of {results} has a speed: those of the models of physics are shown", err=True)
    cells = [
        _cell(candidates, cell, best, measured.get(candidates.cell_names[cell]))
        for cell, best in expected_best(recorded, candidates, MOST).items()
    ]
    known, simulated = len(recorded.candidates), _simulated(place)
    if as_json:
        click.echo(json.dumps({"name": grid.name, "simulated": simulated, "measured_runs": known, "cells": cells}))
    else:
        _show(
            f"{grid.name}: predicted from {known:,} {'simulated' if simulated else 'measured'} runs, not measured",
            cells,
        )
        click.echo(f"{SIMULATED}\n" if simulated else "", nl=False)
    return 0


def _simulated(place: Path) -> bool:
    """Whether a run of these results was simulated."""
    import analysis

    return bool(analysis.load(place, ["simulated"])["simulated"].fillna(False).any())


def _measured(recorded: Any) -> dict[tuple[str, int], float]:
    """(model, nodes) -> the best measured tokens/s/GPU."""
    found: dict[tuple[str, int], float] = {}
    names, cells = recorded.candidates.cell_names, recorded.candidates.cells
    for place in recorded.worked.nonzero()[0].tolist():
        name, rate = names[cells[place]], float(recorded.tokens_per_second_per_gpu[place])
        found[name] = max(rate, found.get(name, 0.0))
    return found


def _cell(candidates: Candidates, cell: int, best: list[Expected], measured: float | None) -> dict[str, Any]:
    model, nodes = candidates.cell_names[cell]
    layouts = [
        {name: candidates.columns[name][one.row].item() for name in LAYOUT}
        | {"predicted_tokens_per_second_per_gpu": one.tokens_per_second_per_gpu, "low": one.low, "high": one.high}
        | {"chance_to_run": one.works, "run_id": candidates.ids[one.row]}
        for one in best
    ]
    return {"model": model, "nodes": nodes, "best_measured": measured, "layouts": layouts}


def _show(title: str, cells: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    head = ("model", "nodes", "layout", "tokens/s/GPU", "9 of 10 within", "works", "best measured")
    table = Table(*head, title=title)
    for column in (table.columns[1], *table.columns[3:]):
        column.justify = "right"
    for cell in cells:
        measured = "–" if cell["best_measured"] is None else f"{cell['best_measured']:,.0f}"
        for one in cell["layouts"]:
            within = f"{one['low']:,.0f} to {one['high']:,.0f}"
            rate = f"{one['predicted_tokens_per_second_per_gpu']:,.0f}"
            works = f"{one['chance_to_run']:.0%}"
            table.add_row(cell["model"], str(cell["nodes"]), layout_text(one), rate, within, works, measured)
    Console(highlight=False, width=140).print(table)
