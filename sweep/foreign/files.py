"""Foreign tables and results on disk: read, converted, written. The only file of its package that touches files."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sweep.contract import FURTHER, LAYOUT, LAYOUT_FIELDS, Layout
from sweep.errors import Mistake, SweepError, nearest
from sweep.files import check_columns, read_table, read_text, unguarded, write_new
from sweep.foreign.convert import doubtful_repeats, records_of_rows, unknown_columns
from sweep.foreign.mapping import plain_map, read_map
from sweep.foreign.plausible import marked, table_notes
from sweep.foreign.suggest import suggested_map
from sweep.inputs import yaml_lines
from sweep.outcomes import Outcome
from sweep.physics.hardware import GPUS
from sweep.physics.shapes import ModelShape
from sweep.records.collect import write_results
from sweep.records.schema import COLLECTED, COLUMNS, arrow_types
from sweep.search.candidates import UNKNOWN_GPU, from_configurations
from sweep.search.saving import RecordedRun, promising_order

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN, MOST_REPEATS = 10, 1000
_CONFIGURATION = ("model", "nodes", "gpus_per_node", "sequence_length", "dtype", "compile", "workload", "repeat")
_STATED = ("run_id", "model", "nodes", "gpus_per_node", "sequence_length")
"""without these a row is the measurement of no configuration"""
_COUNTED = (*_STATED[2:], "dp", "tp", "pp", "cp", "ep", "micro_batch_size", "grad_accum")
"""at least 1 each"""
_UNSTATED = {"dtype": "bf16", "compile": False, "workload": "imported", "repeat": 0}
_OUTCOMES = {str(outcome): outcome for outcome in Outcome}
_NEEDED = (
    *("run_id", "outcome", "final", "gpu", "shape_json", "params_json", "env_json", *_CONFIGURATION, *LAYOUT),
    *("tokens_per_second_per_gpu", "peak_memory_bytes", "total_s"),
)


@dataclass(frozen=True)
class Imported:
    """The result of an import."""

    path: Path
    rows: int
    outcomes: Mapping[str, int]
    suspects: Sequence[tuple[int, str]]
    """(line of the source, what is wrong with it)"""
    unmapped: Sequence[str]
    """columns of the source that no column of the record uses, stored under their own names"""
    stated_again: int = 0
    """rows with a measurement that another row has too: they do not count as repeats"""
    notes: Sequence[str] = ()
    """what many rows have in common, and so is said once"""

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        suspects = [{"line": line, "notes": notes} for line, notes in self.suspects]
        return {**vars(self), "path": str(self.path), "outcomes": dict(self.outcomes), "suspects": suspects}

    def shown(self) -> list[str]:
        """What the table as a whole shows, and the first suspects, as text."""
        lines = [f"line {line}: {notes}" for line, notes in self.suspects[:_SHOWN]]
        rest = len(self.suspects) - len(lines)
        return [*self.notes, *lines] + ([f"and {rest} further suspect rows: see the column notes"] if rest > 0 else [])


def import_file(file: Path, map_file: Path | None, target: Path) -> Imported:
    """Convert a table and write it. Raises SweepError with every mistake of the map, and then of the table."""
    mapping = plain_map(file.stem)
    if map_file is not None:
        if not map_file.exists():
            raise SweepError(Mistake("no such map", str(map_file), remedy="check the path"))
        mapping = read_map(yaml_lines.load(read_text(map_file, "map"), str(map_file)))
    table = _read_table(file)
    rows = table.to_pylist()
    records = records_of_rows(rows, mapping, str(file))
    notes = table_notes(records) if mapping.flops_stated else []
    if not {"grad_accum", "global_batch_tokens"} & (mapping.columns.keys() | mapping.constants.keys()):
        notes.append("neither the global batch nor grad_accum is stated: one micro-batch per step is taken")
    records = marked(records, mapping.flops_stated)
    records, alone = doubtful_repeats(records, rows, mapping), records
    both = zip(records, alone, strict=True)
    notes += dict.fromkeys(note for new, old in both for note in (new.notes or [])[len(old.notes or ()) :])
    unmapped = unknown_columns(table.column_names, mapping)
    keys = [(record.run_id, record.attempt) for record in records]
    write_results(target, records, lambda results: _with_unknown(results, table, unmapped, keys))
    suspects = [(i, "; ".join(r.notes or ())) for i, r in enumerate(records, start=2) if r.suspect]
    outcomes, again = Counter(str(r.outcome) for r in records), sum((r.attempt or 1) > 1 for r in records)
    return Imported(target, len(records), outcomes, suspects, unmapped, again, notes)


def suggest_map(file: Path, target: Path) -> None:
    """Write a first map of a table, to be checked and completed. Raises SweepError where the file exists."""
    table = _read_table(file)
    write_new(target, suggested_map(table.column_names, table.to_pylist(), file.stem))


def read_recorded(path: Path, models: Sequence[str] = ()) -> RecordedRun:
    """Results (of a sweep or an import) as the input of a replay: one run per configuration and repeat."""
    table = read_table(path, types=arrow_types())
    check_columns(table, _NEEDED, path)
    stated = [*_NEEDED, *(name for name in FURTHER if name in table.column_names)]
    rows = [row for row in table.select(stated).to_pylist() if row["final"] and (not models or row["model"] in models)]
    rows = [row for row in rows if not any(row[name] is None for name in _STATED)]
    rows = [row for row in rows if not any(row[name] is not None and row[name] < 1 for name in _COUNTED)]
    if not rows:
        of_models = f" of {', '.join(models)}" if models else ""
        known = sorted({str(model) for model in table.column("model").to_pylist()})
        remedy = nearest(models[0], known) if models else "it has no run that ended"
        raise SweepError(Mistake(f"there are no runs{of_models}", str(path), remedy=remedy))
    if any(not 0 <= (row["repeat"] or 0) < max(MOST_REPEATS, table.num_rows) for row in rows):
        raise SweepError(Mistake("its repeats are not numbered from 0", str(path), remedy="collect the results again"))
    # What a record leaves out of a shape follows from the rest
    shapes = {row["shape_json"]: json.loads(row["shape_json"] or "{}") for row in rows}
    shapes = {text: ModelShape.of(values).as_dict() if values else {} for text, values in shapes.items()}
    # Of several kinds of GPU the one with the most memory: what does not fit there fits nowhere.
    kinds = sorted({str(row["gpu"]) for row in rows} & GPUS.keys())
    gpu = max((GPUS[kind] for kind in kinds), key=lambda each: each.memory_bytes or 0, default=UNKNOWN_GPU)
    given = [_configuration(row, shapes[row["shape_json"]]) for row in rows]
    order = promising_order(from_configurations([row["run_id"] for row in rows], given, gpu))
    rows, given = [rows[i] for i in order], [given[i] for i in order]
    return RecordedRun(
        from_configurations([row["run_id"] for row in rows], given, gpu),
        tuple(_OUTCOMES.get(row["outcome"], Outcome.UNKNOWN) for row in rows),
        _numbers(rows, "tokens_per_second_per_gpu"),
        _numbers(rows, "peak_memory_bytes"),
    )


def _configuration(row: Mapping[str, Any], shape: Mapping[str, Any]) -> dict[str, Any]:
    """A run of the row; what its source did not state has the default of a run."""
    given = {name: row[name] for name in LAYOUT_FIELDS if row.get(name) is not None}
    found = _UNSTATED | {name: row[name] for name in _CONFIGURATION if row[name] is not None}
    found |= {"layout": dataclasses.asdict(Layout(**given)), "shape": shape}
    return found | {"params": json.loads(row["params_json"] or "{}"), "env": json.loads(row["env_json"] or "{}")}


def _numbers(rows: Sequence[Mapping[str, Any]], name: str) -> Any:
    return np.array([np.nan if row[name] is None else row[name] for row in rows], dtype=np.float64)


def _read_table(path: Path) -> pa.Table:
    import pyarrow as pa
    import pyarrow.csv

    if not path.exists():
        raise SweepError(Mistake("no such table", str(path), remedy="a CSV or Parquet file"))
    if path.suffix in (".parquet", ".pq"):
        return read_table(path)
    head, _, _ = read_text(path, "CSV table", None).partition("\n")  # raises for what is no text
    options = pyarrow.csv.ParseOptions(newlines_in_values=True, delimiter=max(",\t", key=head.count))
    remedy, line = "columns separated by commas or tabs, their names in the first line", None
    try:
        table = unguarded(pyarrow.csv.read_csv(path, parse_options=options))
    except pa.ArrowException as error:
        table = None
        line = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", str(error))
    if table is None or (table.num_columns < 2 and set(";|") & set(head)) or head.startswith("{"):
        fact = f"the row has {line[3]} columns, the first line {line[2]}" if line else "not a CSV table"
        raise SweepError(Mistake(fact, str(path), int(line[1]) if line else None, remedy=remedy))
    named = [at for at, name in enumerate(table.column_names) if name]  # others: an index, commas at the ends of lines
    again = [str(at + 1) for at in named if table.column_names.index(table.column_names[at]) < at]
    if again:
        fact = f"column {again[0]} has the name of an earlier one"
        raise SweepError(Mistake(fact, str(path), 1, remedy="give each column a name of its own"))
    return table.select(named)


def _with_unknown(
    results: pa.Table, source: pa.Table, names: Sequence[str], keys: Sequence[tuple[str | None, int | None]]
) -> pa.Table:
    """Add the source's further columns to the results, by run_id and attempt; the schema's names get a prefix."""
    import pyarrow as pa

    place = {key: i for i, key in enumerate(keys)}
    found = zip(results.column("run_id").to_pylist(), results.column("attempt").to_pylist(), strict=True)
    rows = pa.array([place[key] for key in found])
    schema = {column.name for column in COLUMNS + COLLECTED}
    for name in names:
        column = source.column(name).take(rows)
        results = results.append_column(f"source_{name}" if name in schema else name, column)
    return results
