"""Results into memory: one sweep, several, or any Parquet file of the record schema. Only the columns needed."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from sweep.contract import FURTHER, LAYOUT, further_of
from sweep.errors import Mistake, SweepError
from sweep.files import check_columns, column_names, read_table
from sweep.records.schema import MEASURED, arrow_type, arrow_types, columns_by_name

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Source = str | Path

ESSENTIAL = ("model", "nodes")
"""The minimum for any figure"""

ATTEMPT = ("run_id", "attempt", "started_at")
"""What tells an attempt from all others: one that a sweep and its copy or archive have counts once"""

PLAN_COLUMNS = ("model", "nodes", "status", "reasons", "run_id")
_SKIPPED = ("skipped", "gain", "chance")


def load(source: Source | Iterable[Source], columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Records, one row per attempt, also of one that several sources have.

    ``source``: a sweep directory, a Parquet file of the schema, or several of them. ``columns``: what is wanted
    (default: every column). A column of the schema that a file lacks is null; unknown columns
    are kept where a file has them. ``attrs["units"]`` maps a column to its unit. Whole numbers and booleans are
    pandas' nullable types, so that missing stays missing.

    Raises SweepError where a file is missing, is not Parquet, or has no model, no node count or nothing measured.
    """
    import pandas as pd

    paths = _paths(source)
    if not paths:
        raise SweepError("no results were named: give a sweep directory or a Parquet file")
    read = columns if columns is None or len(paths) == 1 else [*dict.fromkeys((*columns, *ATTEMPT))]
    frames = [_frame(results_file(path), read) for path in paths]
    frame = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
    if len(frames) > 1:
        frame = frame[frame["started_at"].isna() | ~frame.duplicated([*ATTEMPT])].reset_index(drop=True)
    known = columns_by_name()
    frame.attrs["units"] = {name: known[name].unit for name in frame.columns if name in known}
    return frame


def load_plan(source: Source | Iterable[Source], columns: Sequence[str] = ()) -> pd.DataFrame | None:
    """The candidates of the plans next to the results, or None where there is none: a file needs no plan.

    Columns: model, nodes, status (run or rejected), reasons, run_id, skipped (strategy or budget where the run will
    not be started for it, else null), gain and chance of such a run (`sweep.records.skipped`) and those asked for that
    the plan has.
    """
    import pandas as pd

    frames = []
    for path in _paths(source):
        files = [*path.glob("plan.parquet"), *sorted(path.glob("plan-[0-9]*.parquet"))] if path.is_dir() else []
        frames += [_plan_frame(file, columns) for file in files]
    if not frames:
        return None
    plan: pd.DataFrame = pd.concat(frames, ignore_index=True)
    # Several sweeps may share runs, and extensions that were made at the same time
    plan = plan[plan["run_id"].isna() | ~plan["run_id"].duplicated()].reset_index(drop=True)
    files = [path / "skipped.parquet" for path in _paths(source)]
    tables = [_skipped(file) for file in files if file.is_file()]
    for name in _SKIPPED:
        known = {run_id: value for table in tables for run_id, value in zip(table["run_id"], table[name], strict=True)}
        plan[name] = plan["run_id"].map(known).astype(object)
    return plan


def _skipped(file: Path) -> pd.DataFrame:
    table = read_table(file)
    check_columns(
        table, ("run_id", *_SKIPPED), file, "a table of skipped runs", f"`sweep collect {file.parent}` rebuilds it"
    )
    return _to_pandas(table)


def _paths(source: Source | Iterable[Source]) -> list[Path]:
    return [Path(item) for item in ([source] if isinstance(source, (str, Path)) else source)]


def results_file(source: Path) -> Path:
    """The Parquet file of a source."""
    file = source / "results.parquet" if source.is_dir() else source
    if file.is_file():
        return file
    remedy = f"`sweep collect {source}` makes it" if source.is_dir() else "name a sweep directory or a Parquet file"
    raise SweepError(Mistake("no such results", file=str(file), remedy=remedy))


def _frame(file: Path, columns: Sequence[str] | None) -> pd.DataFrame:
    import pyarrow as pa

    table = read_table(file, columns, arrow_types())
    check_columns(table, [name for name in ESSENTIAL if columns is None or name in columns], file)
    if MEASURED.isdisjoint(column_names(file)):
        fact = "no column has an outcome or a measurement: not the results of a sweep"
        raise SweepError(Mistake(fact, file=str(file), remedy="name the results, not a plan or another table"))
    known = columns_by_name()
    named = columns if columns is not None else [*known, *(c for c in table.column_names if c not in known)]
    wanted = [name for name in named if name in known or name in table.column_names]
    for name in wanted:
        if name not in table.column_names:
            nothing = pa.nulls(table.num_rows, arrow_type(known[name].type if name in known else "string"))
            table = table.append_column(name, nothing)
    frame = _to_pandas(table.select(wanted))
    return frame.assign(**{name: frame[name].fillna(plain) for name, plain in FURTHER.items() if name in frame})


def _to_pandas(table: pa.Table) -> pd.DataFrame:
    import pandas as pd
    import pyarrow as pa

    nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    # What its metadata states to pandas may be anything, and is parsed even where it is ignored
    return table.replace_schema_metadata().to_pandas(types_mapper=nullable.get)


def _plan_frame(file: Path, columns: Sequence[str]) -> pd.DataFrame:
    table = read_table(file, [*PLAN_COLUMNS, *columns])
    check_columns(table, ("run_id", "model", "nodes", "status"), file, "a plan", "restore it: it is written once")
    return _to_pandas(table).astype({"model": str, "status": str})


def versions_of(records: pd.DataFrame) -> dict[str, Counter[str]]:
    """Name -> version -> how many attempts state it, of what ranks reported: python, torch, cuda, nccl."""
    versions: dict[str, Counter[str]] = {}
    for text, count in (records["versions_json"].value_counts() if "versions_json" in records else {}).items():
        for name, version in json.loads(str(text)).items():
            if known(version):
                versions.setdefault(str(name), Counter())[str(version)] += int(count)
    return versions


def items_of(value: Any) -> list[Any]:
    """The items of a list column's cell; none where it is null."""
    return list(value) if hasattr(value, "__len__") and not isinstance(value, str) else []


def known(value: Any) -> TypeGuard[Any]:
    """Neither None, NaN nor pandas' NA."""
    if value is None:
        return False
    try:
        return not math.isnan(value)
    except TypeError:
        return type(value).__name__ != "NAType"


def plain_values(row: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """A row's known values of those names, numbers of numpy and pandas as Python's own."""
    stated = {name: row[name] for name in names if known(row.get(name))}
    return {name: value.item() if hasattr(value, "item") else value for name, value in stated.items()}


def layout_names(row: Mapping[str, Any]) -> list[str]:
    """The layout's fields that are worth naming: all that a run states, and others that are not at their default."""
    return [*LAYOUT, *further_of(plain_values(row, FURTHER))]


def as_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """A mapping per row."""
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def json_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows as JSON values; missing is null. Without the times of single steps."""
    light = table.drop(columns="step_times_s", errors="ignore")
    rows: list[dict[str, Any]] = json.loads(light.to_json(orient="records", double_precision=15))
    return rows


def places_text(cells: Iterable[tuple[Any, Any]], most: int) -> str:
    """Cells (model, nodes) as text, by model: 8B on 4 nodes; 80B on 1, 2 nodes; and 3 more models."""
    of_model: dict[str, set[int]] = {}
    for model, count in cells:
        of_model.setdefault(str(model), set()).add(int(count))
    texts = [f"{m} on {', '.join(map(str, sorted(n)))} node{'s' * (n != {1})}" for m, n in of_model.items()]
    return "; ".join([*texts[:most], *([f"and {len(texts) - most} more models"] if len(texts) > most else [])])
