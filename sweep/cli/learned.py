"""What a grid's runs are expected to do, as records: by the models of physics, or learned from measured runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli.sources import all_results
from sweep.errors import Mistake, SweepError

if TYPE_CHECKING:
    import pandas as pd

    from sweep.inputs.site import Site
    from sweep.planning.runs import Plan, PlannedRun


def predictions(
    grid_file: Path, site_given: str | None, sources: tuple[Path, ...]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The grid's candidates, and predicted records of its runs, with the interval of 9 in 10.

    Without ``sources`` every run as the models of physics predict it; with results, for each cell the best layout as
    they predict it. Raises SweepError for bad input, or where nothing can be predicted.
    """
    from sweep.inputs.load import load_inputs
    from sweep.planning.build import build

    grid, site = load_inputs(grid_file, (), site_given, None)
    plan = build(grid, site)
    candidates = plan.table.to_pandas().astype({"model": str, "status": str, "nodes": "Int64"})
    return candidates, (_learned if sources else _by_physics)(candidates, plan, site, sources)


def factors(runs: Sequence[PlannedRun], site: Site) -> dict[str, float]:
    """run_id -> by what factor 1 in 20 runs is slower than the models of physics predict, and 1 in 20 faster."""
    from sweep.planning.runs import runs_on
    from sweep.search.candidates import from_plan
    from sweep.search.forecast import uncertainty

    found: dict[str, float] = {}
    for group, part in site.parts.items():
        mine = runs_on(runs, group)
        spread = uncertainty(from_plan(mine, part.hardware)).tolist() if mine else []
        found |= {run.run_id: factor for run, factor in zip(mine, spread, strict=True)}
    return found


def _by_physics(candidates: pd.DataFrame, plan: Plan, site: Site, _: tuple[Path, ...]) -> pd.DataFrame:
    from analysis.derive.planned import predicted_records

    return predicted_records(candidates, factors(plan.runs, site))


def _learned(candidates: pd.DataFrame, plan: Plan, site: Site, sources: tuple[Path, ...]) -> pd.DataFrame:
    from analysis.derive.planned import learned_records
    from sweep.foreign.files import read_recorded
    from sweep.search.candidates import from_plan
    from sweep.search.forecast import expected_best, unlearned

    if len(sources) > 1:
        remedy = "name one, or `sweep import` them as one table"
        raise SweepError(Mistake("learns from one sweep or table", path="--predicted", remedy=remedy))
    ((place, sweep),) = all_results(sources)
    recorded = read_recorded(place if sweep is None else sweep.results)
    runs = from_plan(plan.runs, site.hardware)
    best = [one[0] for one in expected_best(recorded, runs, 1).values() if one]
    rates = {runs.ids[one.row]: (one.tokens_per_second_per_gpu, one.low, one.high) for one in best}
    if missing := unlearned(recorded, runs):
        click.echo(missing, err=True)
    return learned_records(candidates, rates)
