"""The heatmap of a sweep or of results: collected first, drawn, saved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.launcher.loop import give_back
from sweep.library.sources import all_results
from sweep.store.follow import FollowedSweep
from sweep.store.sweep import open_sweep

if TYPE_CHECKING:
    import pandas as pd

    from analysis.heatmap.draw import Heatmap


def draw_heatmap(sources: Sequence[Path], out: Path | None = None, **appearance: Any) -> tuple[Path, Heatmap]:
    """(the picture's file, what it shows): the best configuration per model and node count of the sources together.

    ``out``: by default figures/heatmap.png of the sweep, or next to the results. ``appearance``: of
    ``analysis.draw_heatmap``, as ``metric`` and ``keep``. Raises SweepError for sources or a filter that are wrong.
    """
    import analysis
    from analysis.derive.best import NEEDED
    from analysis.filters import names_in
    from analysis.heatmap.draw import check_format, save

    results = all_results(sources)
    give_back()
    place, sweep = results[0]
    beside = place.with_name("heatmap.png") if sweep is None else sweep.figures / "heatmap.png"
    target = out or (beside if len(results) == 1 else Path("heatmap.png"))
    check_format(target)
    places = [place for place, _ in results]
    keep = appearance.get("keep")
    asked = [name for name in ([] if keep is None else names_in(keep)) if name not in NEEDED]
    records = analysis.load(places, [*NEEDED, *asked])
    drawn = analysis.draw_heatmap(records, with_left_out(analysis.load_plan(places, asked), places), **appearance)
    save(drawn, target)
    return target, drawn


def with_left_out(plan: pd.DataFrame | None, places: Sequence[Path]) -> pd.DataFrame | None:
    """The plan with a column for why a run will not be started: strategy or budget."""
    if plan is None:
        return None
    words: dict[str, str] = {}
    for place in (place for place in places if place.is_dir()):
        followed = FollowedSweep(open_sweep(place))
        followed.refresh()
        words |= followed.left_out()
    return plan.assign(left_out=plan["run_id"].map(words)) if words else plan
