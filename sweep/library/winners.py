"""The best configuration of each cell as values, as text and as a picture, for `sweep best`, `heatmap` and others."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.contract import LAYOUT_FIELDS
from sweep.errors import Mistake, SweepError, nearest, plural
from sweep.files import csv_of
from sweep.library.sources import METRIC, collected_results, output_folder
from sweep.outcomes import Outcome
from sweep.state.retries import OUTSIDE
from sweep.stated import Stated, shell_word, stated_values

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
"""Formats of ``as_text``; any other name is a trainer's"""
SIMULATED = "simulated: no model was trained, the times are made up"

_MARKS = re.compile(r"[\\`*~<>|&]|\](?=[(\[])|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
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


def as_text(rows: Sequence[Row], form: str, metric: str) -> str:
    """The winners in a format of ``FORMS``: for programs, Markdown for people."""
    if form == "markdown":
        heads, cells, under = best_table(rows, metric)
        sides = ["---" if head in ("model", "layout", "how sure") else "---:" for head in heads]
        lines = [" | ".join(heads), " | ".join(sides), *(" | ".join(map(_plain, line)) for line in cells)]
        under = [SIMULATED] * any(row["simulated"] for row in rows) + [_plain(text) for text in under]
        return "".join(f"| {line} |\n" for line in lines) + "".join(f"\n{text}\n" for text in under)
    rows = [complete(row, metric) for row in rows]
    if form == "flags":
        return _flags(rows, metric)
    if form == "json":
        return json.dumps(rows, indent=1) + "\n"
    return csv_of([{name: _cell(value) for name, value in row.items()} for row in rows])


def _cell(value: Any) -> Any:
    """A value in a table: a number with four digits, for people; mappings and lists as JSON."""
    if isinstance(value, dict | list):
        return json.dumps(value)
    if not isinstance(value, float) or not math.isfinite(value) or value == 0:
        return value
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    return round(value, digits) if digits else round(value)


def best_table(
    rows: Sequence[Row], metric: str, sure: Callable[[Row], str] | None = None
) -> tuple[list[str], list[list[str]], list[str]]:
    """Headings, lines of cells, and texts under the table, such as what a column would say in every line.

    ``sure``: a word for how sure a winner is; None: its sentence.
    """
    from analysis.heatmap.cell_text import percent_text
    from analysis.metrics import memory_text, metric_named, number

    ranked = metric_named(metric)
    heads = ["model", "nodes", "layout", ranked.label, "MFU", "memory", "margin", "sure" if sure else "how sure"]
    lines = []
    for row in rows:
        memory = "–" if row["peak_memory_bytes"] is None else memory_text(float(row["peak_memory_bytes"]))
        mfu = f"{percent_text(row['reported_mfu'])}*" if _is_reported(row) else percent_text(row["mfu"])
        rated = [number(row["value"] * ranked.factor), mfu, memory, percent_text(row["margin"])]
        last = sure(row) if sure else row["confidence"]
        lines.append([row["model"], str(row["nodes"]), layout_text(row), *rated, last])
    same = [at for at in range(4, len(heads)) if len({line[at] for line in lines}) == 1 < len(lines)]
    under = [f"{heads[at]}: {lines[0][at].replace('–', 'not known')} (all)" for at in same]
    if any(row["mfu"] is None and row["gpu"] == "cpu" for row in rows):
        under = [text for text in under if not text.startswith("MFU:")]
        under.append("MFU is blank on a CPU: it is relative to a GPU's peak FLOP/s.")
    left = [at for at in range(len(heads)) if at not in same]
    return [heads[at] for at in left], [[line[at] for at in left] for line in lines], under + _remarks(rows)


def _remarks(rows: Sequence[Row]) -> list[str]:
    """What must be said with the numbers: whose an MFU is, the notes, equal ones together, and what may be missed."""
    from analysis.derive.blanks import missed_text
    from analysis.tables import places_text

    found = ["*: the MFU that the source states; its tokens/s do not give one here"] * any(map(_is_reported, rows))
    for note in dict.fromkeys(note for row in rows for note in row["notes"] or ()):
        cells = [(row["model"], row["nodes"]) for row in rows if note in (row["notes"] or ())]
        found.append(f"{places_text(cells, most=len(cells))}: {note}")
    missed = missed_text({(row["model"], row["nodes"]): row["missed"] for row in rows if row["missed"]})
    return [*found, missed] if missed else found


def _is_reported(row: Row) -> bool:
    """Whether the only MFU is the one that an imported source reports."""
    return row["mfu"] is None and row["reported_mfu"] is not None


def _plain(text: str) -> str:
    """A text as a cell of a Markdown table: neither markup nor HTML, and on one line."""
    return _MARKS.sub(r"\\\g<0>", " ".join(text.split()))


def _flags(rows: Sequence[Row], metric: str) -> str:
    """One line of shell arguments per cell, after comments that name the cell and judge its value."""
    from analysis.metrics import memory_text
    from analysis.report.usage import as_flags
    from sweep.library.trainer_format import assignment

    lines = []
    for row in rows:
        environment = [assignment(name, str(value)) for name, value in row["env"].items()]
        verdict_text = [f"{metric} {row[metric]:.6g}", row["confidence"], plural(row["repeats"], "run")]
        verdict_text += [f"peak memory {memory_text(row['peak_memory_bytes'])}"] if row["peak_memory_bytes"] else []
        verdict_text += [f"MFU {row['mfu']:.1%}"] if row["mfu"] is not None else []
        verdict_text += [SIMULATED] * row["simulated"] + [Stated(note).line() for note in row["notes"]]
        model, gpu, run_id = (Stated(row[name]).line() for name in ("model", "gpu", "run_id"))
        place = f"{model} on {plural(row['nodes'], 'node')} of {row['gpus_per_node']} {gpu if row['gpu'] else 'GPUs'}"
        lines += [f"# {place}, {run_id}: {'; '.join(verdict_text)}"]
        lines += [" ".join([*environment, as_flags(row, row["params"])])]
    return "\n".join(lines) + "\n"


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
