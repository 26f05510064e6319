"""`sweep plan`: the plan of a grid, and what its runs are expected to do, before anything is submitted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli.command import InputPath, OutputPath, SweepCommand, refuse
from sweep.cli.names import json_option, overrides_option, site_option
from sweep.cli.terminal import console
from sweep.contract import LAYOUT
from sweep.errors import SweepError, plural
from sweep.library.winners import SIMULATED, layout_text

if TYPE_CHECKING:
    from sweep.inputs.grid import Grid
    from sweep.inputs.site import Site
    from sweep.planning.runs import Plan

_SHOWN = ("model", "nodes", *LAYOUT, "dtype", "compile", "params", "env", "further")
_PREDICTED = ("gpus", "global_batch_tokens", "predicted_peak_bytes", "predicted_step_s", "predicted_s")
_REASONS_SHOWN = 3
_NODES_ACROSS = 8
"""columns of node counts that 120 characters hold beside a model's name"""


@click.command(cls=SweepCommand)
@click.argument("grid_file", metavar="GRID", type=InputPath())
@click.option(
    "--show",
    type=click.Choice(["rejected", "runs", "model"]),
    help="One line per rejected candidate with every reason, or per run in measurement order; or the rates that step "
    "times are predicted from, each with its spread and source.",
)
@click.option(
    "--from",
    "results",
    metavar="SOURCE",
    type=InputPath(),
    help="Predict the best layouts from measured runs, such as those on fewer nodes.",
)
@click.option(
    "--heatmap",
    "picture",
    metavar="FILE",
    type=OutputPath(),
    help="Draw the predicted best configuration of each cell.",
)
@overrides_option
@site_option
@json_option
def plan(
    grid_file: Path,
    show: str | None,
    results: Path | None,
    picture: Path | None,
    overrides: tuple[str, ...],
    site_given: str | None,
    as_json: bool,
) -> int:
    """Show the plan of a grid: runs per model and node count, rejected candidates by reason, predicted best and cost.

    Nothing is measured. A predicted interval is expected to hold nine of ten runs. How many runs the strategy will
    need is the median of simulated sweeps.

    \b
    Examples:
      sweep plan examples/ultrascale.yaml
      sweep plan grid.yaml -o nodes=[1,2] -o tp=auto
      sweep plan grid.yaml --show rejected | grep tp=3
      sweep plan large.yaml --from sweeps/small --heatmap predicted.png
      sweep plan grid.yaml --json | jq .cells
    """
    from sweep.inputs.load import load_inputs, load_site
    from sweep.library import plan as library
    from sweep.planning.build import nothing_to_run

    if show is not None:
        refuse(["results", "picture"], "with --show")
    grid, site = load_inputs(grid_file, overrides, site_given)
    stated = site or load_site()
    site = library.with_fabric(stated)
    if show == "model":
        _show_model(grid, site, as_json)
        return 0
    planned = library.plan(grid, site)
    for note in library.fabric_notes(stated, site, grid.nodes):
        click.echo(note, err=True)
    if show is not None and not as_json:
        for row in _rows(planned, show):
            click.echo(_line(row))
    else:
        document = library.plan_summary(planned, site)
        document |= {"strategy": grid.strategy, "budget": grid.budget.model_dump(exclude_none=True)}
        document["expected"] = {name: asdict(one) for name, one in library.expected_saving(planned, grid, site).items()}
        if show is not None:
            document[show if show == "runs" else "rejected_candidates"] = list(_rows(planned, show))
        learned = library.forecast(planned, site, results) if results is not None and planned.runs else None
        if learned is not None:
            document["forecast"] = learned
            click.echo(learned["missing"], err=True) if learned["missing"] else None
        if picture is not None and planned.runs:
            document["heatmap"] = {
                "path": str(picture),
                "cells": library.draw_predicted(planned, site, picture, results, learned).rows(),
            }
        click.echo(json.dumps(document)) if as_json else _tables(document)
    if not planned.runs:
        raise SweepError(nothing_to_run(grid))
    return 0


def _show_model(grid: Grid, site: Site, as_json: bool) -> None:
    from sweep.physics.profiles import PROFILES, profile_of
    from sweep.physics.step_time import machine_of
    from sweep.physics.trainers import behaviour_of

    profile = profile_of(grid.workload, {}) or PROFILES["builtin"]
    behaviour = behaviour_of(profile.name)
    rates = {group: machine_of(part.hardware, profile).rates(behaviour.attention) for group, part in site.parts.items()}
    if as_json:
        rows = {
            group: [dict(zip(("rate", "value", "source"), one, strict=True)) for one in listed]
            for group, listed in rates.items()
        }
        of = {"node_groups": rows} if site.node_groups else {"rates": rows[""]}
        click.echo(json.dumps({"trainer": grid.workload, "behaviour": behaviour.source} | of))
        return
    for group, listed in rates.items():
        where = f"{site.part(group).gpu} ({group})" if group else site.gpu
        click.echo(f"{grid.workload} on {where}: {behaviour.source}")
        for name, value, source in listed:
            click.echo(f"  {name}: {value}  ({source})")


def _rows(plan: Plan, show: str) -> Iterator[dict[str, Any]]:
    import pyarrow.compute as pc

    runs = pc.is_valid(plan.table.column("run_id"))
    extra = ("run_id", "repeat", *_PREDICTED) if show == "runs" else ("predicted_peak_bytes", "reasons")
    table = plan.table.filter(runs if show == "runs" else pc.invert(runs)).select([*_SHOWN, *extra])
    for batch in table.to_batches(max_chunksize=10_000):
        for row in batch.to_pylist():
            yield row | {name: json.loads(row[name]) for name in ("params", "env", "further")}


def _line(row: dict[str, Any]) -> str:
    short = {"micro_batch_size": "mbs", "grad_accum": "gas"}
    layout = " ".join(f"{short.get(n, n)}={'?' if row[n] is None else row[n]}" for n in LAYOUT)
    layout += "".join(f" {name}={value}" for name, value in row["further"].items())
    if "run_id" in row:
        more = "".join(f" {name}={value}" for kind in ("params", "env") for name, value in row[kind].items())
        return f"{row['run_id']}  {layout} dtype={row['dtype']} compile={row['compile']}{more}{_guess(row)}"
    return f"{row['model']} nodes={row['nodes']} {layout}: {'; '.join(row['reasons'])}"


def _guess(row: dict[str, Any]) -> str:
    """A run's predictions as text; empty if there are none."""
    from analysis.metrics import memory_text

    words = []
    if row["predicted_s"] is not None:
        step = row["predicted_step_s"]
        rate = row["global_batch_tokens"] / step / row["gpus"]
        words.append(f"about {row['predicted_s']:.0f} s, {step:.3g} s a step, {rate:,.0f} tokens/s/GPU")
    if row["predicted_peak_bytes"] is not None:
        words.append(f"peak {memory_text(row['predicted_peak_bytes'])}")
    return "  " + ", ".join(words) if words else ""


def _tables(document: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    printer = console(width=120)
    head = f"{plural(document['runs'], 'run')} of {plural(document['candidates'], 'candidate')}"
    mine = document["expected"].get(document["strategy"])
    spends = f"{mine['node_hours']:,.1f} node-hours expected with {document['strategy']}; " if mine else ""
    hours = f"all in full about {document['predicted_node_hours']:,.1f} node-hours ({document['prediction']})"
    printer.print(f"{document['name']}: {head}; {spends}{hours}")
    limits = ", ".join(f"{name} {value:g}" for name, value in document["budget"].items())
    printer.print(f"strategy: {document['strategy']}; budget: {limits or 'none'}")
    for name, one in document["expected"].items():
        share = f"{one['runs']:,} of {plural(document['runs'], 'run')}, {one['node_hours']:,.1f} node-hours"
        below = f"{one['mean_regret']:.1%} below the best of a cell"
        printer.print(f"{name}: expected to measure {share}, and to end {below} (simulated)")
    printer.print(_cell_table(document["cells"]))
    if (learned := document.get("forecast")) is not None:
        printer.print(_forecast_table(learned))
        printer.print(SIMULATED) if learned["simulated"] else None
    elif any(cell["predicted_best"] for cell in document["cells"]):
        printer.print(_best_table(document["cells"]))
    if document["rejected_by_rule"]:
        reasons = Table("rejected by", "candidates", "such as", title="Rejected (a candidate counts with every rule)")
        reasons.columns[1].justify = "right"
        for rule in document["rejected_by_rule"]:
            reasons.add_row(rule["rule"], f"{rule['candidates']:,}", Text("\n".join(rule["such_as"][:_REASONS_SHOWN])))
        printer.print(reasons)
    if "heatmap" in document:
        printer.print(document["heatmap"]["path"], soft_wrap=True)


def _layouts_table(title: str, last: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> Any:
    """Predicted layouts. A row: cell, layout with its interval, tokens/s/GPU, and texts of the ``last`` columns."""
    from rich.table import Table

    table = Table("model", "nodes", "layout", "tokens/s/GPU", "9 of 10 within", *last, title=title)
    for column in (table.columns[1], *table.columns[3:]):
        column.justify = "right"
    for cell, one, rate, *more in rows:
        within = f"{one['low']:,.0f} to {one['high']:,.0f}"
        table.add_row(cell["model"], str(cell["nodes"]), layout_text(one), f"{rate:,.0f}", within, *more)
    return table


def _best_table(cells: list[dict[str, Any]]) -> Any:
    """The layout of each cell that the step-time model expects to be the fastest."""
    from analysis.metrics import memory_text

    rows = []
    for cell in (cell for cell in cells if cell["predicted_best"]):
        best = cell["predicted_best"]
        memory = "–" if best["peak_memory_bytes"] is None else memory_text(best["peak_memory_bytes"])
        mfu = "–" if best["mfu"] is None else f"{best['mfu']:.1%}"
        rows.append((cell, best, best["tokens_per_second_per_gpu"], mfu, memory))
    title = "Predicted best per cell, not measured (step-time and memory models)"
    return _layouts_table(title, ("MFU", "memory"), rows)


def _forecast_table(learned: Mapping[str, Any]) -> Any:
    """The best layouts of each cell as measured runs predict them."""
    runs = plural(learned["measured_runs"], f"{'simulated' if learned['simulated'] else 'measured'} run")
    rows = [
        (cell, one, one["predicted_tokens_per_second_per_gpu"], f"{one['chance_to_run']:.0%}", measured)
        for cell in learned["cells"]
        for measured in ("–" if cell["best_measured"] is None else f"{cell['best_measured']:,.0f}",)
        for one in cell["layouts"]
    ]
    return _layouts_table(f"Predicted from {runs}, not measured", ("works", "best measured"), rows)


def _cell_table(cells: list[dict[str, Any]]) -> Any:
    """Runs (node-hours): models down and node counts across, or the reverse where these are too many for a screen."""
    from rich.table import Table

    count = "{runs:,} ({predicted_node_hours:,.2f})".format_map
    texts = {(cell["model"], cell["nodes"]): count(cell) if cell["runs"] else "0" for cell in cells}
    models, nodes = dict.fromkeys(model for model, _ in texts), sorted({count for _, count in texts})
    rows: Any = [("model", *(f"{n} node{'s' * (n > 1)}" for n in nodes))]
    rows += [(model, *(texts.get((model, n), "") for n in nodes)) for model in models]
    head, *rows = zip(*rows, strict=True) if len(nodes) > max(_NODES_ACROSS, len(models)) else rows
    table = Table(*head, title="Runs (node-hours)")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*row)
    return table
