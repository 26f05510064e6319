"""Draw the pictures of the documentation for its dark theme, as NAME-dark.png alongside the light ones.

``python -m docs.dark`` draws the gallery's from docs/data/laptop.parquet; with an argument, the Parquet file that
`sweep import` makes of the Ultra-Scale Playbook's runs, also those of docs/figures.md.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import analysis
from analysis import figures
from analysis.figures.dark import darken
from analysis.report.figures import png_in_few_colours
from sweep.files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOCS = Path(__file__).parent
GALLERY = ("heatmap", "scaling", "axes", "sensitivity", "neighbours", "pareto", "cost", "outcomes", "spread")
PLAYBOOK = ("heatmap", "scaling", "axes", "pareto")


def draw(source: Path, target: str, names: tuple[str, ...], *, metric: str, models: tuple[str, ...] = ()) -> None:
    """The named figures of a file of results. ``target``: a path with NAME in it. ``models``: only these."""
    tables = figures.load_tables(source)
    if models:
        tables = replace(tables, records=tables.records[tables.records["model"].isin(models)])
    for name in names:
        heatmap = name == "heatmap"
        figure = analysis.draw_heatmap(tables.records, metric=metric).figure if heatmap else None
        _save(figure or figures.draw(name, tables).figure, DOCS / "images" / target.replace("NAME", name))


def _save(figure: Figure, path: Path) -> None:
    darken(figure)
    write_whole(path, png_in_few_colours(figure))


if __name__ == "__main__":
    draw(DOCS / "data/laptop.parquet", "gallery/NAME-dark.png", GALLERY, metric="tokens_per_second_per_gpu")
    if sys.argv[1:]:
        where = Path(sys.argv[1])
        draw(where, "playbook-NAME-dark.png", PLAYBOOK, metric="reported_mfu", models=("1B", "8B"))
