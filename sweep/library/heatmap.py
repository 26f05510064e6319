"""The heatmap of a sweep or of results: collected first, drawn, saved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.library.sources import collected_results, output_folder

if TYPE_CHECKING:
    from analysis.heatmap.draw import Heatmap


def draw_heatmap(sources: Sequence[Path], out: Path | None = None, **appearance: Any) -> tuple[Path, Heatmap]:
    """(the picture's file, what it shows): the best configuration per model and node count of the sources together.

    ``out``: by default figures/heatmap.png of the sweep, or next to the results. ``appearance``: of
    ``analysis.draw_heatmap``, as ``metric`` and ``keep``. Raises SweepError for sources or a filter that are wrong.
    """
    import analysis
    from analysis.derive.best import NEEDED
    from analysis.filters import names_in
    from analysis.heatmap.draw import check_format, draw, save_figure

    results = collected_results(sources)
    target = out or (
        output_folder(*results[0], "figures") / "heatmap.png" if len(results) == 1 else Path("heatmap.png")
    )
    check_format(target)
    places = [place for place, _ in results]
    keep = appearance.get("keep")
    asked = [name for name in ([] if keep is None else names_in(keep)) if name not in NEEDED]
    records = analysis.load(places, [*NEEDED, *asked])
    drawn = draw(records, analysis.load_plan(places, asked), **appearance)
    save_figure(drawn.figure, target)
    return target, drawn
