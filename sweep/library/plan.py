"""From a grid and a site to a plan, and what its runs are expected to do: by the models of physics, by simulated
searches, or learned from measured runs.

What a plan is expected to cost, and whether it can run here: known before anything is submitted.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.contract import LAYOUT
from sweep.errors import Mistake, SweepError
from sweep.inputs.axes import AUTO
from sweep.inputs.grid import Grid, max_run_s
from sweep.inputs.load import load_site, max_local_ranks
from sweep.inputs.site import Site
from sweep.inputs.topology import fabric_of, parse_topology
from sweep.library.sources import collected_results
from sweep.physics.catalogue import MODELS
from sweep.physics.job import saves
from sweep.pilot.job import shown_topology
from sweep.planning.build import build, nothing_to_run
from sweep.planning.runs import Plan, PlannedRun, runs_on
from sweep.planning.summary import summary
from sweep.records.metrics import efficiency
from sweep.search.budget import Budget
from sweep.search.candidates import Candidates, from_plan
from sweep.search.forecast import Expected, expected_best, uncertainty, unlearned
from sweep.search.remeasure import room
from sweep.search.saving import Replay, replays
from sweep.search.strategies import strategy_named

if TYPE_CHECKING:
    import pandas as pd

    from analysis.heatmap.draw import Heatmap


MOST = 3
"""layouts per cell"""
NEAR_BATCH = 0.1
"""as a fraction: a layout has whole micro-batches"""
DRAWS = 15
"""simulated sweeps: results drawn from the time and memory models with their uncertainty"""
MOST_RUNS, MOST_IN_PARTS = 1000, 6000
"""runs that are simulated together in a few seconds; and of a plan that is simulated in parts"""


def plan(grid: Grid, site: Site | None = None) -> Plan:
    """Every candidate of a grid: runs in the order of their measurement, and rejected ones with every reason.

    ``site``: by default the grid's own, otherwise what is detected. Raises SweepError with every mistake.
    """
    return build(grid, site if site is not None else with_fabric(load_site(grid)))


def with_fabric(site: Site) -> Site:
    """The site with the fabric that Slurm's controller states here, where the site states none."""
    found = fabric_of(parse_topology(shown_topology())) if site.fabric is None else None
    return site.model_copy(update={"fabric": found}) if found else site


def unknown_path(site: Site, nodes: Iterable[int]) -> str | None:
    """What a prediction lacks for runs on so many nodes: the rate between leaf switches or NVLink domains."""
    fabric, rates = site.hardware.fabric, site.measured.levels_bytes_per_s if site.measured else {}
    near = (fabric.switch_nodes or fabric.domain_nodes) if fabric else 0
    return (
        f"note: runs on more than {near} nodes reach over several switches or domains; no rate between these is known: "
        "they are predicted as if under one (`sweep doctor --tier pair` measures it)"
    ) if 0 < near < max(nodes) and "across" not in rates else None  # fmt: skip


def fabric_notes(stated: Site, site: Site, nodes: Iterable[int]) -> list[str]:
    """Whose fabric the site has, where its file states none, and what a prediction lacks."""
    of_here = "note: switches and domains as this machine's Slurm has them; of another cluster's: the site's `fabric`"
    return [*([of_here] if site is not stated else []), *([unknown] if (unknown := unknown_path(site, nodes)) else [])]


def expected_saving(plan: Plan, grid: Grid, site: Site) -> Mapping[str, Replay]:
    """The grid's strategy, and `guided` -> the median of its simulated sweeps. Empty where the plan is too large.

    A large plan is simulated in parts of a model's cells: a search learns from the others too, and may spend less.
    """
    limits, large = grid.budget.model_dump(exclude_none=True), len(plan.runs) > MOST_RUNS
    groups = [(runs_on(plan.runs, group), part.hardware) for group, part in site.parts.items()]
    if large:
        groups = [(part, gpu) for runs, gpu in groups for part in _parts(runs)]
    sets = [from_plan(runs, gpu) for runs, gpu in groups if runs]
    if not sets or (large and (limits or len(plan.runs) > MOST_IN_PARTS)):
        return {}
    stops = None if grid.stops_slow == "off" else grid.warmup_iterations + grid.iterations
    draws, most_s, saving = DRAWS // (5 if large else 1), max_run_s(grid), dict[str, Replay]()
    for name in ["guided"] if large else dict.fromkeys([grid.strategy, "guided"]):
        strategy = strategy_named(name, **({"miss": grid.miss} if grid.miss is not None and name == "guided" else {}))
        drawn = [
            replays(one, strategy, Budget.of(limits, len(one)), draws, iterations=stops, most_s=most_s) for one in sets
        ]
        sums = []
        for parts in zip(*drawn, strict=True):  # the node groups' searches; their regret on average by runs of each
            runs = sum(one.runs for one in parts)
            regret = sum(one.mean_regret * one.runs for one in parts) / max(1, runs)
            sums.append((runs, sum(one.node_hours for one in parts), regret))
        runs, hours, regret = map(statistics.median, zip(*sums, strict=True))
        saving[name] = Replay(round(runs), hours, regret)
    return saving


def _parts(runs: Iterable[PlannedRun]) -> Iterable[list[PlannedRun]]:
    """Of each model, whole cells of about ``MOST_RUNS`` runs together."""
    first, parts = dict[tuple[str, int], int](), dict[tuple[str, int], list[PlannedRun]]()
    for i, run in enumerate(sorted(runs, key=lambda run: run[1:3])):
        part = first.setdefault(run[1:3], i) // MOST_RUNS
        parts.setdefault((run.model, part), []).append(run)
    return parts.values()


def plan_summary(plan: Plan, site: Site) -> dict[str, Any]:
    """The plan in numbers; of each cell's predicted best, MFU and the interval of 9 of 10 such runs."""
    document = summary(plan)
    best = {one["run_id"]: one for cell in document["cells"] if (one := cell["predicted_best"])}
    runs = {run.run_id: run for run in plan.runs if run.run_id in best}
    for run_id, factor in factors(list(runs.values()), site).items():
        rate, gpu = best[run_id]["tokens_per_second_per_gpu"], site.part(runs[run_id].node_group).gpu
        best[run_id] |= {
            "low": rate / factor,
            "high": rate * factor,
            "mfu": efficiency(runs[run_id].run(), rate, gpu).mfu,
        }
    return document


def fastest_layout(
    model: str, gpu: str, gpus: int, trainer: str, *, sequence_length: int, global_batch: int
) -> dict[str, Any] | None:
    """The predicted best layout of a catalogue's model on so many GPUs, as of ``plan_summary``; None where none fits.

    ``global_batch``: tokens of a step, from which a layout's may differ by ``NEAR_BATCH``.
    """
    each, axes = math.gcd(gpus, 8), ("tp", "pp", "ep", "zero", "recompute")
    grid = Grid(
        workload=trainer,
        models={model: MODELS[model]},
        nodes=[gpus // each],
        sequence_length=sequence_length,
        global_batch=global_batch,
        global_batch_tolerance=NEAR_BATCH,
        micro_batch_size=[2**power for power in range(7)],
        **dict.fromkeys(axes, AUTO),
    )
    site = Site(gpu=gpu, gpus_per_node=each)
    try:
        (cell,) = plan_summary(plan(grid, site), site)["cells"]
    except SweepError:  # no layout at all has such a batch
        return None
    best: dict[str, Any] | None = cell["predicted_best"]
    return best


def factors(runs: Sequence[PlannedRun], site: Site) -> dict[str, float]:
    """run_id -> by what factor 1 in 20 runs is slower than the models of physics predict, and 1 in 20 faster."""
    factor_of: dict[str, float] = {}
    for group, part in site.parts.items():
        mine = runs_on(runs, group)
        spread = uncertainty(from_plan(mine, part.hardware)).tolist() if mine else []
        factor_of |= {run.run_id: factor for run, factor in zip(mine, spread, strict=True)}
    return factor_of


def forecast(plan: Plan, site: Site, results: Path) -> dict[str, Any]:
    """The fastest layouts of each cell of a plan, as measured runs predict them: measure small, predict large.

    ``cells``: model, nodes, best_measured (tokens/s/GPU, or None) and layouts, each with its rate, the interval that 9
    of 10 such runs are expected in, and the chance to run. ``measured_runs``; ``simulated``: whether one of them was;
    ``missing``: what the results do not teach, or None. Raises SweepError for results that are wrong.
    """
    import analysis
    from sweep.foreign.files import read_recorded

    ((place, directory),) = collected_results([results])
    recorded = read_recorded(place if directory is None else directory.results)
    candidates = from_plan(plan.runs, site.hardware)
    best_measured: dict[tuple[str, int], float] = {}
    for at in recorded.worked.nonzero()[0].tolist():
        name = recorded.candidates.cell_names[recorded.candidates.cells[at]]
        rate = float(recorded.tokens_per_second_per_gpu[at])
        best_measured[name] = max(rate, best_measured.get(name, 0.0))
    missing = unlearned(recorded, candidates)
    if not best_measured:
        nothing = f"note: no run of {results} has a speed: those of the models of physics are shown"
        missing = f"{missing}\n{nothing}" if missing else nothing
    return {
        "cells": [
            _cell(candidates, cell, best, best_measured.get(candidates.cell_names[cell]))
            for cell, best in expected_best(recorded, candidates, MOST).items()
        ],
        "measured_runs": len(recorded.candidates),
        "simulated": bool(analysis.load(place, ["simulated"])["simulated"].fillna(False).any()),
        "missing": missing or None,
    }


def draw_predicted(
    plan: Plan, site: Site, out: Path, results: Path | None = None, learned: Mapping[str, Any] | None = None
) -> Heatmap:
    """Draw the heatmap of a plan, marked as predicted, with intervals. With results, the cells that they measured are
    as measured, and the others as ``learned``, their ``forecast``. Raises SweepError for a file that is wrong.
    """
    import analysis
    from analysis.derive.best import NEEDED
    from analysis.derive.planned import learned_records, predicted_records, with_predictions
    from analysis.heatmap.draw import check_format, draw, save_figure

    check_format(out)
    table: pd.DataFrame = plan.table.to_pandas().astype({"model": str, "status": str, "nodes": "Int64"})
    if results is None or learned is None:
        records = predicted_records(table, factors(plan.runs, site))
    else:
        ((place, _),) = collected_results([results])
        best = [cell["layouts"][0] for cell in learned["cells"] if cell["layouts"]]
        names = ("predicted_tokens_per_second_per_gpu", "low", "high")
        rates = {one["run_id"]: tuple(one[name] for name in names) for one in best}
        records = with_predictions(analysis.load([place], NEEDED), learned_records(table, rates))
    drawn = draw(records, table)
    save_figure(drawn.figure, out)
    return drawn


def _cell(candidates: Candidates, cell: int, best: list[Expected], measured: float | None) -> dict[str, Any]:
    model, nodes = candidates.cell_names[cell]
    layouts = [
        {name: candidates.columns[name][one.row].item() for name in LAYOUT}
        | {"predicted_tokens_per_second_per_gpu": one.tokens_per_second_per_gpu, "low": one.low, "high": one.high}
        | {"chance_to_run": one.works, "run_id": candidates.ids[one.row]}
        for one in best
    ]
    return {"model": model, "nodes": nodes, "best_measured": measured, "layouts": layouts}


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a launch is about to spend."""

    runs: int
    """that the budget has room for"""
    repeats: int
    """of top configurations, at most, once they have ended"""
    gpu_hours: float
    """of all these runs in full, without repeats"""
    expected_runs: int | None
    expected_gpu_hours: float | None
    """what the strategy is expected to spend, by simulated sweeps; None where that is not known"""
    most_gpu_hours: float
    """if each run took its time limit"""
    cpu: bool
    """whether there is no GPU: the hours are of ranks"""
    pilots: int | None
    """at once, at most; None: on this machine"""


def estimate(plan: Plan, grid: Grid, site: Site, executor: str) -> Estimate:
    """The plan's runs, as far as the budget of each node group reaches."""
    expected, most, count = 0.0, 0.0, 0
    for group, part in site.parts.items():  # a budget is each group's own
        runs = runs_on(plan.runs, group)
        budget = Budget.of(grid.budget.model_dump(), len(runs))
        nodes = sorted((planned.nodes for planned in runs), reverse=True)[: budget.runs]
        allowed = budget.node_hours or math.inf
        each_h = sum(run.nodes * run.expected_s for run in runs) / 3600 / max(1, len(runs)) * len(nodes)
        expected += min(each_h, allowed) * part.gpus_per_node
        most += min(sum(nodes) * max_run_s(grid) / 3600, allowed) * part.gpus_per_node
        count += len(nodes)
    expected_by = expected_saving(plan, grid, site).get(grid.strategy)
    same = len({part.gpus_per_node for part in site.parts.values()}) == 1
    return Estimate(
        expected_runs=expected_by.runs if expected_by else None,
        expected_gpu_hours=expected_by.node_hours * site.gpus_per_node if expected_by and same else None,
        runs=count,
        repeats=room(grid.remeasure_share, count),
        gpu_hours=expected,
        most_gpu_hours=most,
        cpu=site.gpu == "cpu",
        pilots=None if executor == "local" else sum(part.max_pilots for part in site.parts.values()),
    )


def check_runnable(plan: Plan, grid: Grid, site: Site, executor: str) -> None:
    """Raises SweepError if there is nothing to run, or if it cannot run here."""
    mistakes = [] if plan.runs else [nothing_to_run(grid)]
    if executor == "local" and site.node_groups:
        fact = "the executor local has one kind of node, this machine, and the site has node_groups"
        mistakes.append(Mistake(fact, path="node_groups", remedy="another site, or --executor slurm"))
    saving = (planned.run() for planned in plan.runs if '"checkpoint":' in planned.run_json)
    if site.checkpoint_dir is None and any(saves(run.params) for run in saving):
        fact, remedy = "the site states no checkpoint_dir", "checkpoint_dir: DIRECTORY in the site"
        mistakes.append(grid.mistake(fact, ("params", "checkpoint"), remedy))
    ranks = max((planned.nodes for planned in plan.runs), default=0) * site.gpus_per_node
    if executor == "local" and ranks > max_local_ranks(site):
        fact = f"the widest run has {ranks:,} ranks, and this machine may run {max_local_ranks(site)} at once"
        mistakes.append(grid.mistake(fact, ("nodes",), "fewer nodes, or max_local_ranks in the site"))
    if grid.max_run_time is not None and grid.max_run_time > site.pilot_time:
        fact = f"a run may take {grid.max_run_time:.0f} s, and a pilot has {site.pilot_time:.0f} s"
        mistakes.append(grid.mistake(fact, ("max_run_time",), "less, or a longer pilot_time in the site"))
    if mistakes:
        raise SweepError(mistakes)
