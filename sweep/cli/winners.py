"""The best configuration of each cell as values and as text, for `sweep best`, `sweep export best` and others."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.cli.options import METRIC
from sweep.cli.sources import all_results
from sweep.errors import Mistake, SweepError, nearest

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

CONFIGURATION = (
    *("model", "nodes", "gpus_per_node", "gpus", "gpu", "workload", "sequence_length", "global_batch_tokens"),
    *("dp", "tp", "pp", "cp", "ep", "zero", "micro_batch_size", "grad_accum", "recompute", "pp_schedule"),
    *("dtype", "compile", "params", "env"),
)
"""Everything that makes the run"""
SIMULATED = "simulated: no model was trained, the times are made up"

Row = dict[str, Any]


def winners(
    sources: Sequence[Path],
    metric: str = METRIC,
    expression: str | None = None,
    models: Sequence[str] = (),
    widths: Sequence[int] = (),
) -> list[Row]:
    """The best configuration's record per cell, as JSON values, models from small to large.

    In addition to its columns: value, margin, verdict, sureness, params, env. Raises SweepError where there is none.
    """
    import analysis
    from analysis.derive.best import NEEDED, model_order
    from analysis.derive.sureness import verdict
    from analysis.filters import names_in
    from analysis.heatmap.draw import HEAVY
    from analysis.metrics import metric_named

    ranked = metric_named(metric)
    places = [place for place, _ in all_results(sources)]
    asked = [] if expression is None else names_in(expression)
    records = analysis.load(places, list(dict.fromkeys([*NEEDED, "node_names", *asked])))
    matching = records if expression is None else analysis.keep(records, expression)
    found = analysis.best_per_cell(matching, metric)
    order = model_order(records, list(dict.fromkeys(found["model"])))
    wanted = found[(found["model"].isin(models) | (not models)) & (found["nodes"].isin(widths) | (not widths))]
    if wanted.empty:
        raise SweepError(_nothing(found[["model", "nodes"]].to_records(index=False).tolist(), metric, models))
    light = wanted.drop(columns=[name for name in HEAVY if name in wanted])
    rows: list[Row] = json.loads(light.to_json(orient="records", double_precision=15))
    claims = [verdict(cell, ranked) for cell in wanted.to_dict("records")]
    for row, (claim, sentence) in zip(rows, claims, strict=True):
        row |= {"verdict": claim, "sureness": sentence, "margin": _margin(row, ranked.higher_is_better)}
        row |= {name: json.loads(row.get(f"{name}_json") or "{}") for name in ("params", "env")}
        row["notes"] = [*(row["notes"] or ()), *_unequal_steps(matching, row, metric)]
    return sorted(rows, key=lambda row: (order.index(row["model"]), row["nodes"]))


def complete(row: Mapping[str, Any], metric: str) -> Row:
    """All that makes a winner's run, and all that rates it: the columns of every export."""
    metrics = {metric: row["value"], "tokens_per_second_per_gpu": row["tokens_per_second_per_gpu"], "mfu": row["mfu"]}
    metrics |= {name: row[name] for name in ("peak_memory_bytes", "margin", "verdict", "sureness", "repeats")}
    marks = {"simulated": bool(row["simulated"]), "suspect": bool(row["suspect"]), "notes": row["notes"] or []}
    ran = {"node_names": row.get("node_names"), "run_id": row["run_id"]}
    return {**{name: row[name] for name in CONFIGURATION}, **metrics, **marks, **ran}


def table(rows: Sequence[Row], metric: str = METRIC) -> RenderableType:
    """The winners as a table for a terminal, with the marks that they need."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from analysis.metrics import metric_named, number

    ranked = metric_named(metric)
    title = "Best configuration per model and node count" + (f" ({SIMULATED})" if any_simulated(rows) else "")
    found = Table("model", "nodes", "layout", ranked.label, "MFU", "memory", "margin", "how sure", title=title)
    for column in found.columns[3:7]:
        column.justify = "right"
    found.columns[2].max_width = 40
    for row in rows:
        value = number(row["value"] * ranked.factor)
        cells = (layout_text(row), value, mfu_text(row), _memory(row), _percent(row["margin"]), row["sureness"])
        found.add_row(row["model"], str(row["nodes"]), *(Text(cell) for cell in cells))
    return Group(found, *(Text(text, style="yellow") for text in remarks(rows)))


def remarks(rows: Sequence[Row]) -> list[str]:
    """What must be said with the numbers: why MFU is blank, and each winner's notes."""
    found = []
    if any(row["mfu"] is None and row["gpu"] == "cpu" for row in rows):
        found.append("MFU is blank on a CPU: it is relative to a GPU's peak.")
    found += [f"{row['model']} on {row['nodes']}: {note}" for row in rows for note in row["notes"] or ()]
    return found


def best(source: str | Path, metric: str = METRIC) -> pd.DataFrame:
    """The best configuration of each cell of a sweep directory or a results file: a row per model and node count.

    A sweep's new records are collected first. Raises SweepError where there is none.
    """
    import pandas as pd

    found: pd.DataFrame = pd.DataFrame(winners([Path(source)], metric))
    return found


def any_simulated(rows: Sequence[Row]) -> bool:
    """Whether any winner was simulated."""
    return any(row["simulated"] for row in rows)


def layout_text(row: Mapping[str, Any]) -> str:
    """DP2 TP4 PP1 MBS2 GAS8 ZeRO1."""
    from analysis.heatmap.cell_text import layout

    return " ".join(word for group in layout(row) for word in group)


def mfu_text(row: Mapping[str, Any]) -> str:
    """The MFU, else the one that an imported source reports."""
    value = row["mfu"] if row["mfu"] is not None else row["reported_mfu"]
    return _percent(value)


def rounded(value: Any) -> Any:
    """A number with four digits, for people; anything else as it is."""
    if not isinstance(value, float) or not math.isfinite(value) or value == 0:
        return value
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    return round(value, digits) if digits else round(value)


def _unequal_steps(records: pd.DataFrame, row: Row, metric: str) -> list[str]:
    """That a cell ranked by the time of a step has steps of different work: the shortest need not be the fastest."""
    if metric != "step_time_median_s":
        return []
    mine = records[(records["model"] == row["model"]) & (records["nodes"] == row["nodes"]) & records[metric].notna()]
    tokens = mine["global_batch_tokens"].dropna()
    if tokens.nunique() < 2:
        return []
    remedy = f'--filter "global_batch_tokens == {int(tokens.max())}", or rank by {METRIC}'
    return [f"steps of {tokens.min():,.0f} to {tokens.max():,.0f} tokens are not comparable by their time ({remedy})"]


def _nothing(cells: Sequence[tuple[str, int]], metric: str, models: Sequence[str]) -> Mistake:
    if not cells:
        return Mistake(f"no measured configuration has {metric}", remedy="another --metric or --filter")
    known = {model for model, _ in cells}
    unknown = [model for model in models if model not in known]
    measured = ", ".join(f"{model} on {nodes}" for model, nodes in cells)
    if unknown:
        remedy = nearest(unknown[0], known, f"measured: {measured}")
        return Mistake(f"no measured model {unknown[0]!r}", path="--model", remedy=remedy)
    return Mistake("no such cell was measured", remedy=f"measured: {measured}")


def _margin(row: Mapping[str, Any], higher_is_better: bool) -> float | None:
    """The lead over the second as a fraction of the second."""
    best, second = row["value"], row["runner_up"]
    if not best or not second:
        return None
    return float(best / second - 1 if higher_is_better else second / best - 1)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _memory(row: Mapping[str, Any]) -> str:
    from analysis.metrics import memory_text

    return "–" if row["peak_memory_bytes"] is None else memory_text(float(row["peak_memory_bytes"]))
