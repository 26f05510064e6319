"""`sweep figures`: every figure of a sweep but the heatmap, as files."""

from __future__ import annotations

import json
from pathlib import Path

import click

from sweep.cli.command import OutputPath, SweepCommand
from sweep.cli.options import json_option
from sweep.cli.sources import results_of
from sweep.library.sources import readable


@click.command(cls=SweepCommand, short_help="Scaling, axes, Pareto, outcomes, time line and more, as pictures.")
@click.argument("words", metavar="[DIR_OR_PARQUET] [NAME]...", nargs=-1)
@click.option("--out", type=OutputPath(directory=True), help="Folder. Default: figures/ of the sweep.")
@click.option(
    "--format",
    "ending",
    type=click.Choice(["png", "svg", "pdf"]),
    default="png",
    show_default=True,
    help="File format.",
)
@json_option
def figures(words: tuple[str, ...], out: Path | None, ending: str, as_json: bool) -> int:
    """Draw the named figures, or all, of the newest sweep unless another is named.

    A figure whose data are missing reports so, in the picture and on stderr.
    A sweep's new records are collected first. An unknown name lists them all.

    \b
    Examples:
      sweep figures
      sweep figures sweeps/first
      sweep figures sweeps/first timeline outcomes --format svg
      sweep figures results.parquet scaling pareto --out paper --format pdf
    """
    from analysis import figures as drawing
    from analysis.heatmap.draw import save_figure

    source = readable(words[0]) if words and words[0] not in drawing.FIGURES else None
    chosen = drawing.named(words if source is None else words[1:])
    place, folder = _place(source)
    tables = drawing.load_tables(place)
    figures = []
    for name in chosen:
        drawn = drawing.draw(name, tables)
        target = (out or folder) / f"{name}.{ending}"
        save_figure(drawn.figure, target)
        figures.append({"name": name, "path": str(target), "caption": drawn.caption, "lacking": drawn.lacking})
        if not as_json:
            click.echo(str(target))
            if drawn.lacking is not None:
                click.echo(f"{name}: {drawn.lacking}", err=True)
    if as_json:
        click.echo(json.dumps(figures))
    return 0


def _place(source: Path | None) -> tuple[Path, Path]:
    """What to read (a sweep is collected first), and where its pictures go."""
    place, sweep = results_of(source)
    return place, place.parent / "figures" if sweep is None else sweep.figures
