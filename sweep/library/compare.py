"""Sweeps of one grid compared with each other, or one with a baseline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sweep.errors import Mistake, SweepError
from sweep.library.sources import METRIC, collected_results

if TYPE_CHECKING:
    from analysis.compare.baseline import Certificate
    from analysis.compare.history import History

WITHIN = 0.05
"""95 % of the baseline passes, as in NVIDIA's DGX Cloud benchmarking recipes"""


def compare(*sources: str | Path, metric: str = METRIC, noise: float | None = None, anyway: bool = False) -> History:
    """Two sweeps or more (directories, or results files), each against the one before, and the last against the first.

    Two are taken in the order given; more are sorted by their first attempts. ``noise``: the run-to-run standard
    deviation of a change, where it is known better than from the sweeps (0.01 is 1 %). ``anyway``: also where no run
    is in both, or where they differ in model, sequence or batch.

    Raises SweepError where one has no results, or two cannot be compared.
    """
    import analysis
    from analysis.compare.history import history
    from analysis.compare.noise import columns_needed

    places = [place for place, _ in collected_results([Path(source) for source in sources])]
    tables = [analysis.load(place, columns_needed()) for place in places]
    return history(tables, [str(source) for source in sources], metric=metric, noise=noise, anyway=anyway)


def certify(
    source: str | Path,
    baseline: str | Path,
    *,
    within: float = WITHIN,
    metric: str = METRIC,
    noise: float | None = None,
) -> Certificate:
    """Whether each workload of a sweep is as fast as in a baseline, but for a fraction ``within``. Both are sweep
    directories or results files. Runs that the search skipped are no workloads. ``noise``: as for ``compare``.

    Raises SweepError where one has no results, or they have no workload in common.
    """
    import analysis
    from analysis.compare.baseline import CONFIGURATION
    from analysis.compare.baseline import certify as certify_records
    from analysis.compare.noise import columns_needed

    if Path(source).resolve() in (Path(baseline).resolve(), *Path(baseline).resolve().parents):
        fact = "the sweep would be checked against its own results"
        raise SweepError(Mistake(fact, file=str(baseline), remedy="another baseline"))
    (good, _), (now, _) = collected_results([Path(baseline), Path(source)])
    records, reference = (analysis.load(place, columns_needed()) for place in (now, good))
    plan = analysis.load_plan(now, CONFIGURATION)
    planned = None if plan is None else plan[(plan["status"] == "run") & plan["skipped"].isna()]
    return certify_records(reference, records, planned, within=within, metric=metric, noise=noise)
