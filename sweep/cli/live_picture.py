"""The picture of the live view: values in, rich renderables out. It fits the height that it is given."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.style import Style
from rich.table import Table
from rich.text import Text

from analysis.metrics import number
from sweep.cli.progress_text import (
    NOT_RUN,
    brief,
    counted,
    delay_text,
    eta,
    full_text,
    hours_text,
    hours_unit,
    pilots_text,
    queue_texts,
    saved_text,
)
from sweep.contract import node_group_of
from sweep.errors import first_names, plural
from sweep.executors.slurm_states import wait
from sweep.library.winners import SIMULATED
from sweep.physics.shapes import total_parameters
from sweep.state.tally import elapsed_s

if TYPE_CHECKING:
    from sweep.state.state import PilotState, SweepState
    from sweep.state.tally import Cell, Tally
    from sweep.store.sweep import Sweep

COLOURS = {"ok": "green", "running": "cyan", "waiting": "dim"}
SHADES = ("#440154", "#3b528b", "#21918c", "#5ec962", "#fde725")
"""viridis: perceptually uniform, also for colour-blind readers"""
PILOTS_SHOWN, FAILURES_SHOWN, LATEST_SHOWN = 4, 4, 3
OTHER_LINES = 9
"""head, blank lines and headings of the picture"""
MIN_SPAN = 0.2
"""the colour scale spans at least this fraction of a model's best, so that small differences look small"""
MODELS_SHOWN = 4
"""fewest rows of the heatmap, however small the terminal"""


def picture(sweep: Sweep, now: float, *, height: int = 40, width: int = 80) -> RenderableType:
    """Progress, runs by state, the best so far per cell, pilots, failures, of so many lines and characters.

    ``now``: unix s.
    """
    sweep_state, tally = sweep.sweep_state, sweep.tally
    pilots, failures = _pilots(sweep_state, tally, now), _failures(tally)
    marks = [Text(SIMULATED, style="yellow")] if sweep.grid.simulated else []
    waits = [Text(text, style="yellow") for text in (*queue_texts(sweep_state), delay_text(sweep)) if text]
    wrapped = sum(-(-len(text) // width) for text in waits)
    room = height - OTHER_LINES - len(marks) - wrapped - pilots.row_count - failures.row_count
    models = _models(sweep)
    room_below = room - len(models) - 3
    latest = _latest(tally, now, min(LATEST_SHOWN, room_below))
    best = _winners(tally, models, room_below - latest.row_count - 2)
    parts: list[RenderableType] = [
        _head(sweep, now),
        *marks,
        Text("  ").join(Text(text, style=_colour(word)) for text, word in counted(tally.counts(sweep.skipped()))),
        Text(),
        _heatmap(tally, models, max(MODELS_SHOWN, room), width),
        Text("n/m: of m runs n have ended; brighter: nearer to the model's best", style="dim"),
    ]
    shown = (("best so far", best), (pilots_text(sweep_state), pilots), ("latest", latest), ("failures", failures))
    for title, table in shown:
        if table.row_count:
            parts += [Text(), Text(title, style="bold"), table]
    parts += waits
    bad = sweep_state.excluded_nodes
    if bad:
        parts.append(Text(f"excluded: {first_names(sorted(bad), 4)} (`sweep nodes` shows why)", style="yellow"))
    return Group(*parts)


def _head(sweep: Sweep, now: float) -> RenderableType:
    """The name, progress, estimated time left, cost."""
    tally = sweep.tally
    counts = tally.counts(sweep.skipped())
    skipped = sum(number for word, number in counts.items() if word.startswith(NOT_RUN))
    asked_for = tally.total - skipped
    done = asked_for - counts.get("waiting", 0) - counts.get("running", 0)
    held, used = tally.gpu_hours(now)
    share = f", {used / held:.0%} of them in attempts" if held > 0 and used <= held else ""
    words = "cancelled" if sweep.sweep_state.cancelled else full_text(sweep) or eta(sweep)
    omitted = f" ({skipped:,} skipped, {saved_text(sweep)})" if skipped else ""
    line = Table.grid(padding=(0, 2), expand=False)
    bar = ProgressBar(total=max(1, asked_for), completed=done, width=24, complete_style="cyan", finished_style="green")
    line.add_row(Text(sweep.grid.name, style="bold"), bar, f"{done:,}/{plural(asked_for, 'run')}{omitted}")
    elapsed = elapsed_s(sweep.sweep_state, now)
    since = "" if elapsed is None else f"; {_clock(elapsed)} elapsed"
    spent = f"; {hours_text(held)} {hours_unit(sweep.site)} spent{share}"
    return Group(line, Text.assemble(words, (since + spent, "dim")))


def _winners(tally: Tally, models: Sequence[str], room: int) -> Table:
    """The fastest run of each cell so far, where there is room for all."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    cells = [(model, nodes, cell) for (model, nodes), cell in tally.cells.items() if cell.winner is not None]
    cells.sort(key=lambda each: (models.index(each[0]), each[1]))
    for model, nodes, cell in cells if len(cells) <= room else ():
        where = f"{model} on {plural(nodes, 'node')}"
        table.add_row(where, f"{number(cell.best or 0.0)} tok/s/GPU", Text(_layout(cell.winner or ""), no_wrap=True))
    return table


def _latest(tally: Tally, now: float, most: int) -> Table:
    """The attempts that ended last."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    for planned, last in tally.latest(most) if most > 0 else ():
        rate = last.tokens_per_second_per_gpu
        result = f"{number(rate)} tok/s/GPU" if rate else ""
        ago = f"{_clock(now - (last.ended_at or now))} ago"
        outcome = Text(str(last.outcome), style=_colour(str(last.outcome)))
        table.add_row(ago, outcome, result, Text(planned.run_id, no_wrap=True, overflow="ellipsis"))
    return table


def _layout(run_id: str) -> str:
    """The layout's part of a run_id: dp2-tp1-pp1-mbs2-gas16-z0."""
    match = re.search(r"-(dp\d{1,9}-tp\d{1,9}-pp\d.*)", run_id.rpartition("-")[0])
    return match[1] if match else run_id


def _colour(word: str) -> str:
    return "dim" if word.startswith(NOT_RUN) else COLOURS.get(word, "red")


def _models(sweep: Sweep) -> list[str]:
    """The models that have runs, from small to large; on each node group as in the grid."""
    shapes = sweep.grid.models
    sizes = {name: (total_parameters(shape), at) for at, (name, shape) in enumerate(shapes.items())}
    planned = dict.fromkeys(run.model for run in sweep.runs)
    return sorted(planned, key=lambda name: sizes[name.removesuffix(f"@{node_group_of(name)}")])


def _heatmap(tally: Tally, models: Sequence[str], most: int, line_width: int) -> Table:
    """Best tokens/s/GPU so far by model and nodes; brighter is nearer to the model's best."""
    every = sorted({nodes for _, nodes in tally.cells})
    wide = len(every) < 8
    name_width = min(24, max(map(len, [*models, "tok/s/GPU by nodes"])))
    room = (line_width - name_width - 1) // 8  # characters of a cell without its n/m
    widths = every if wide or len(every) <= room else every[: max(1, room - 2)]
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold", show_edge=False)
    table.add_column("best tok/s/GPU" if wide else "tok/s/GPU by nodes", no_wrap=True, max_width=name_width)
    for width in widths:
        table.add_column(f"{width} node{'s' * (width != 1)}" if wide else str(width), justify="center")
    if len(widths) < len(every):
        table.add_column(f"and {len(every) - len(widths)} more", no_wrap=True)
    for model in models[:most]:
        row = {width: tally.cells.get((model, width)) for width in widths}
        rates = [cell.best for cell in row.values() if cell and cell.best]
        table.add_row(model, *[_cell(row[width], rates, wide=wide) for width in widths])
    if len(models) > most:
        table.add_row(Text(f"and {len(models) - most} more models", style="dim"))
    return table


def _cell(cell: Cell | None, rates: Sequence[float], *, wide: bool) -> Text:
    """The value on its colour in the model's range, and how much of the cell is done."""
    if cell is None:
        return Text("·", style="dim")
    done = f"{cell.done}/{cell.runs}"
    if cell.best is None:
        return Text(done if wide else ("…" if cell.done < cell.runs else "none"), style="dim")
    high, low = max(rates), min(*rates, max(rates) * (1 - MIN_SPAN))
    shade = SHADES[min(len(SHADES) - 1, int((cell.best - low) / ((high - low) or 1.0) * len(SHADES)))]
    ink = "#ffffff" if shade in SHADES[:2] else "#000000"
    text = Text.assemble((f" {number(cell.best):>5} ", Style(color=ink, bgcolor=shade)))
    return text.append(f" {done:<7}", style="dim") if wide else text


def _pilots(sweep_state: SweepState, tally: Tally, now: float) -> Table:
    """The open pilots: their nodes, and what they measure."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    held = sorted((p for p in sweep_state.pilots.values() if p.open), key=lambda p: (p.started_at is None, p.name))
    running = {attempt.pilot: (planned.run_id, attempt.started_at) for planned, attempt in tally.in_flight()}
    for pilot in held[:PILOTS_SHOWN]:
        table.add_row(*_pilot_row(pilot, running.get(pilot.name), now))
    return table


def _pilot_row(pilot: PilotState, at: tuple[str, float | None] | None, now: float) -> Sequence[RenderableType]:
    nodes = Text(first_names(pilot.node_names, 2) or plural(pilot.nodes, "node"), no_wrap=True)
    if pilot.started_at is None:
        why = Text(
            "" if pilot.waits is None else wait(pilot.waits).text, style="dim", no_wrap=True, overflow="ellipsis"
        )
        return pilot.name, Text("queued", style="dim"), Text(_clock(now - pilot.intended_at), style="dim"), nodes, why
    if pilot.ended is not None:
        return pilot.name, Text("ending", style="dim"), "", nodes, Text(pilot.ended, style="dim", no_wrap=True)
    if at is None:
        return pilot.name, Text("running", style="cyan"), "", nodes, Text("between runs", style="dim")
    doing = Text(at[0], no_wrap=True, overflow="ellipsis")
    return pilot.name, Text("running", style="cyan"), _clock(now - (at[1] or now)), nodes, doing


def _failures(tally: Tally) -> Table:
    """Failed runs by reason, each with the message of the latest."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    shown = list(tally.failures.items())[:FAILURES_SHOWN]
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()  # the only one that may be wrapped, so that it alone gives way; its text is cut instead
    for outcome, count in shown:
        message = Text(brief(tally.example(outcome)), style="dim", no_wrap=True, overflow="ellipsis")
        table.add_row(f"{count:,}", Text(outcome, style="red"), message)
    if len(tally.failures) > FAILURES_SHOWN:
        rest = list(tally.failures.items())[FAILURES_SHOWN:]
        table.add_row(f"{sum(number for _, number in rest):,}", f"{len(rest)} further reasons")
    return table


def _clock(seconds: float) -> str:
    """Minutes and seconds: 0:07, 12:40, 3:05:00."""
    minutes, second = divmod(max(0, int(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
