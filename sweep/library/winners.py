"""The best configuration of each cell as values, as text and as a picture, for `sweep best`, `heatmap` and others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.contract import LAYOUT_FIELDS
from sweep.errors import Mistake, SweepError, nearest
from sweep.library.sources import METRIC, collected_results, output_folder
from sweep.outcomes import Outcome
from sweep.state.retries import OUTSIDE
from sweep.stated import shell_word, stated_values

if TYPE_CHECKING:
    import pandas as pd

    from analysis.heatmap.draw import Heatmap


CONFIGURATION = (
    *("model", "nodes", "gpus_per_node", "gpus", "gpu", "workload", "sequence_length", "global_batch_tokens"),
    *LAYOUT_FIELDS,
    *("dtype", "compile", "params", "env"),
)
"""Everything that makes the run"""
FORMS = ("json", "csv", "markdown", "flags")
"""Formats of ``table_formats``; any other name is a trainer's"""
SIMULATED = "simulated: no model was trained, the times are made up"

_KINDS_OF_WORK = {"sequence_length": "sequence length", "gpu": "kind of GPU", "global_batch_tokens": "global batch"}

Row = dict[str, Any]


def winners(
    sources: Sequence[Path],
    metric: str = METRIC,
    expression: str | None = None,
    models: Sequence[str] = (),
    widths: Sequence[int] = (),
) -> list[Row]:
    """The best configuration's record per cell, as JSON values, models from small to large.

    In addition to its columns: value, margin, verdict, confidence, params, env. Raises SweepError where there is none.
    """
    import analysis
    from analysis.derive.best import CELL, NEEDED, model_order, succeeded
    from analysis.derive.blanks import missed_by_cell
    from analysis.derive.confidence import lead_of, verdict
    from analysis.derive.job import with_failure_rate
    from analysis.filters import names_in
    from analysis.metrics import JOB, metric_named
    from analysis.tables import json_rows

    ranked = metric_named(metric)
    places = [place for place, _ in collected_results(sources)]
    asked = [] if expression is None else names_in(expression)
    records = analysis.load(places, list(dict.fromkeys([*NEEDED, "node_names", *asked])))
    records = with_failure_rate(records) if metric == JOB else records
    matching = records if expression is None else analysis.keep(records, expression)
    best_rows = analysis.best_per_cell(matching, metric)
    order = model_order(records, list(dict.fromkeys(best_rows["model"])))
    wanted = best_rows[
        (best_rows["model"].isin(models) | (not models)) & (best_rows["nodes"].isin(widths) | (not widths))
    ]
    if wanted.empty:
        raise SweepError(
            _nothing(best_rows[["model", "nodes"]].to_records(index=False).tolist(), matching, metric, models)
        )
    rows, missed = json_rows(wanted), missed_by_cell(analysis.load_plan(places), records)
    measured = matching[succeeded(matching)].groupby(CELL)
    kinds = measured[[*_KINDS_OF_WORK]].nunique().to_dict("index")
    tokens = measured["global_batch_tokens"].agg(["min", "max"]).to_dict("index")
    claims = [verdict(cell, ranked) for cell in wanted.to_dict("records")]
    for row, (claim, sentence) in zip(rows, claims, strict=True):
        row |= {"verdict": claim, "confidence": sentence, "margin": lead_of(row, ranked)}
        row |= {name: stated_values(row, f"{name}_json") for name in ("params", "env")}
        cell = row["model"], row["nodes"]
        row["missed"] = missed.get(cell)
        row["notes"] = [*(row["notes"] or ()), *_unequal_work(kinds[cell], tokens[cell], row, metric)]
    return sorted(rows, key=lambda row: (order.index(row["model"]), row["nodes"]))


def complete(row: Mapping[str, Any], metric: str) -> Row:
    """All that makes a winner's run, and all that rates it: the columns of every export."""
    metrics = {metric: row["value"], "tokens_per_second_per_gpu": row["tokens_per_second_per_gpu"], "mfu": row["mfu"]}
    metrics |= {"reported_mfu": row["reported_mfu"]} if row["reported_mfu"] is not None else {}
    metrics |= {
        name: row[name] for name in ("peak_memory_bytes", "margin", "verdict", "confidence", "repeats", "missed")
    }
    marks = {"simulated": bool(row["simulated"]), "suspect": bool(row["suspect"]), "notes": row["notes"] or []}
    ran = {"node_names": row.get("node_names"), "run_id": row["run_id"]}
    return {**{name: row[name] for name in CONFIGURATION}, **metrics, **marks, **ran}


def best(source: str | Path, metric: str = METRIC) -> pd.DataFrame:
    """The best configuration of each cell of a sweep directory or a results file: a row per model and node count.

    A sweep's new records are collected first. Raises SweepError where there is none.
    """
    import pandas as pd

    rows: pd.DataFrame = pd.DataFrame(winners([Path(source)], metric))
    return rows


def layout_text(row: Mapping[str, Any]) -> str:
    """DP2 TP4 PP1 MBS2 GAS8 ZeRO1."""
    from analysis.heatmap.cell_text import layout

    return " ".join(word for group in layout(row) for word in group)


def _unequal_work(kinds: Mapping[str, int], tokens: Mapping[str, float], row: Row, metric: str) -> list[str]:
    """That a cell ranks work of several kinds together. The lead is over the same sequence length and GPU only.

    Of steps of different work the shortest need not be the fastest. ``kinds``: of the cell's measured runs the number
    of values by column; ``tokens``: their smallest and largest global batch.
    """
    if metric == "step_time_median_s" and kinds["global_batch_tokens"] > 1:
        span = f"{tokens['min']:,.0f} to {tokens['max']:,.0f}"
        remedy = f'--filter "global_batch_tokens == {int(tokens["max"])}", or rank by {METRIC}'
        return [f"steps of {span} tokens are not comparable by their time ({remedy})"]
    other = [name for name in _KINDS_OF_WORK if row[name] is not None and kinds[name] > 1]
    if not other:
        return []
    values = {name: json.dumps(row[name]) for name in other}
    what = " or ".join(_KINDS_OF_WORK[name] for name in other)
    remedy = " and ".join(f"{name} == {value}" for name, value in values.items())
    return [f"runs of another {what} were measured here too (--filter {shell_word(remedy)} leaves them out)"]


def _nothing(cells: Sequence[tuple[str, int]], records: pd.DataFrame, metric: str, models: Sequence[str]) -> Mistake:
    from analysis.metrics import JOB

    if not cells and len(records) and not (records["outcome"].fillna("ok") == "ok").any():
        ends = ", ".join(f"{number} {outcome}" for outcome, number in records["outcome"].value_counts().items())
        if records["outcome"].isin({*map(str, OUTSIDE), str(Outcome.CANCELLED)}).all():
            return Mistake(f"no run was measured: {ends}", remedy="`sweep resume` of its sweep measures the rest")
        return Mistake(f"no run succeeded: {ends}", remedy="`sweep report` has what each said")
    if not cells:
        remedy = "measure one with params: {checkpoint: async}" if metric == JOB else "another --metric or --filter"
        return Mistake(f"no measured configuration has {metric}", remedy=remedy)
    known = {model for model, _ in cells}
    unknown = [model for model in models if model not in known]
    measured = ", ".join(f"{model} on {nodes}" for model, nodes in cells)
    if unknown:
        remedy = nearest(unknown[0], known, f"measured: {measured}")
        return Mistake(f"no measured model {unknown[0]!r}", path="--model", remedy=remedy)
    return Mistake("no such cell was measured", remedy=f"measured: {measured}")


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
