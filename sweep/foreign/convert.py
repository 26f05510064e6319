"""Rows of a foreign table to records: values read by the map, derived columns computed, implausible values noted."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sweep.contract import LAYOUT, LAYOUT_FIELDS, Layout, Run
from sweep.errors import Mistake, SweepError, nearest
from sweep.foreign.mapping import BY_NAME, ImportMap, Reading, cell_text, factor
from sweep.foreign.row import Number, Row, grouping_texts, nearest_size, numbers, separated_sizes, size_names
from sweep.outcomes import Outcome
from sweep.physics import flops, shapes
from sweep.physics.catalogue import MODELS, catalogued
from sweep.records.record import configuration, record_from
from sweep.records.schema import CONFIGURATION_NAMES, MEASURED, Efficiency, Rates, Record, json_text

MOST_MISTAKES = 20
MOST_COLUMNS = 40
CELL_CHARACTERS = 10_000
"""of a cell, from its start, on which an expression of the map is tried"""
DEFAULT_GPUS_PER_NODE = 8
_OF_THE_SOURCE = (
    *("gpus", "global_batch_tokens", "warmup_iterations", "iterations"),
    *("dtype", "compile", "recompute", "pp_schedule", "zero"),
)
"""Configuration columns that follow from no other: null if neither the source nor the map states them"""
_THOUSANDS = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?")
"""9,367.0"""
_WITH_UNIT = re.compile(r"([-\d.,]*\d)\s*([^\W\d].*|%)")
"""61.2 GiB, 43.1 %"""
_SWITCH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def records_of_rows(rows: Sequence[Mapping[str, Any]], mapping: ImportMap, file: str) -> list[Record]:
    """One record per row, in their order. Raises SweepError naming the rows (lines of the file) that cannot be read."""
    if not rows:
        raise SweepError(Mistake("the table has no rows", file, remedy="a line of column names, and one per run"))
    _check_sources(rows[0], mapping, file)
    lines: dict[str, list[int]] = {}
    found: list[Row] = []
    for line, row in enumerate(rows, start=2):
        try:
            found.append(_row(row, mapping, line))
        except (ValueError, TypeError) as error:
            for fact in error.args or (repr(error),):
                lines.setdefault(str(fact), []).append(line)
    if lines:
        mistakes = []
        for fact, places in lines.items():
            further = ", ".join(map(str, places[1:6])) + (", …" if len(places) > 6 else "")
            also = f"; also line{'s' * (len(places) > 2)} {further}" if further else ""
            mistakes.append(Mistake(f"{fact}{also}", file, places[0]))
        rest = len(mistakes) - MOST_MISTAKES
        more = [Mistake(f"and {rest} further mistakes", file)] if rest > 0 else []
        raise SweepError(mistakes[:MOST_MISTAKES] + more)
    sized = separated_sizes(found)
    return [_record(row, mapping, number) for row, number in zip(sized, numbers(sized), strict=True)]


def doubtful_repeats(records: Sequence[Record], rows: Sequence[Mapping[str, Any]], mapping: ImportMap) -> list[Record]:
    """The records, with a note where those of one configuration differ in what the map does not distinguish."""
    read = {reading.source for name, reading in mapping.columns.items() if name in MEASURED}
    places = [at for at, record in enumerate(records) if record.outcome is Outcome.OK and record.attempt == 1]
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for at in places:
        groups[tuple(getattr(records[at], name) for name in CONFIGURATION_NAMES)].append(at)
    names, found = grouping_texts([rows[at] for at in places], read) if places else [], list(records)
    for same in groups.values():
        several = [name for name in names if len({rows[at].get(name) for at in same}) > 1]
        note = f"{len(same)} rows of the source have this configuration, but differ in {', '.join(several)}"
        for at in same if several else ():
            found[at] = replace(found[at], notes=[*(found[at].notes or ()), note])
    return found


def unknown_columns(columns: Sequence[str], mapping: ImportMap) -> list[str]:
    """Columns of the source that the map does not read."""
    choices = (mapping.flops, mapping.flops_counted, mapping.frozen_weights)
    readings = (*mapping.columns.values(), *mapping.params.values(), *choices)
    read = {reading.source for reading in readings if isinstance(reading, Reading)}
    return [name for name in columns if name not in read]


def _check_sources(row: Mapping[str, Any], mapping: ImportMap, file: str) -> None:
    """Columns that the map names and the table lacks; a map of the schema itself takes what there is."""
    plain = all(reading == Reading(source=name) for name, reading in mapping.columns.items())
    params = {f"params.{name}": reading for name, reading in mapping.params.items()}
    facts = {**_lacks(row, mapping), **_unread(row, params)} if plain else _unread(row, {**params, **mapping.columns})
    if not any(name in MEASURED and reading.source in row for name, reading in mapping.columns.items()):
        remedy = "such as tokens_per_second_per_gpu or step_time_median_s; --map FILE says which column gives it"
        facts["no column has an outcome or a measurement"] = remedy
    if facts:
        raise SweepError([Mistake(fact, file, 1, remedy=remedy) for fact, remedy in facts.items()])


def _lacks(row: Mapping[str, Any], mapping: ImportMap) -> dict[str, str]:
    """What a table with the record's own columns lacks of them, and the remedy."""
    given = row.keys() | mapping.constants.keys()
    missing = [name for name in ("model", "sequence_length") if name not in given]
    missing += ["nodes"] * given.isdisjoint({"nodes", "gpus"})
    if not missing:
        return {}
    names = ", ".join(missing) + (" (or gpus)" if missing[-1] == "nodes" else "")
    fact = f"no column{'s' * (len(missing) > 1)} {names}, which every run needs; the table has {_shown(row)}"
    return {fact: "a map states what gives it: --suggest-map FILE writes a first one, and --map FILE reads it"}


def _shown(row: Mapping[str, Any]) -> str:
    """The names of a table's columns, unless none is a record's: a file that is no table may hold secrets."""
    if BY_NAME.keys().isdisjoint(name.lower() for name in row):
        return f"{len(row)} columns, none of which a record has"
    return ", ".join(list(row)[:MOST_COLUMNS]) + (", …" if len(row) > MOST_COLUMNS else "")


def _unread(row: Mapping[str, Any], readings: Mapping[str, Reading]) -> dict[str, str]:
    """The columns that the map reads and the table lacks, and the remedies."""
    otherwise = "the map must say which column gives it"
    return {
        f"no column {reading.source!r}, which gives {name}": nearest(reading.source, row, otherwise)
        for name, reading in readings.items()
        if reading.source not in row
    }


def _row(row: Mapping[str, Any], mapping: ImportMap, line: int) -> Row:
    """What the row states, completed; its run is the first measurement of its configuration."""
    given = _given(row, mapping)
    notes = _complete(given)
    convention = flops.CONVENTIONS[_chosen(row, mapping.flops, "flops")]
    frozen = bool(_chosen(row, mapping.frozen_weights, "frozen_weights"))
    executed = _chosen(row, mapping.flops_counted, "flops_counted") == "executed"
    label, shapes_of_it = str(given["model"]), _shapes(given, mapping)
    # The trainer's parameters that the row states, as the map's ``values`` write them, else as text
    stated = {name: _chosen_value(row.get(reading.source), reading) for name, reading in mapping.params.items()}
    params = {name: value for name, value in stated.items() if value is not None}
    params |= {"frozen_weights": True} if frozen else {}
    found = [
        Row(
            line=line,
            cells=row,
            given=given | {"model": name},
            run=_run(given | {"model": name}, shape.as_dict(), params),
            shape=shape,
            convention=convention,
            executed=executed,
            notes=notes,
        )
        for name, shape in zip(size_names(label, shapes_of_it), shapes_of_it, strict=True)
    ]
    return nearest_size(found)


def _record(row: Row, mapping: ImportMap, number: Number) -> Record:
    run = replace(row.run, repeat=number[0])
    values = {**row.given, **vars(configuration(run, row.given.get("gpu")))}
    values |= {name: row.given.get(name) for name in _OF_THE_SOURCE}
    values |= {"run_id": run.run_id, "attempt": number[1], "repeat": run.repeat, "sweep_name": mapping.name}
    unknown = {name: row.cells[name] for name in unknown_columns(list(row.cells), mapping)}
    extra: dict[str, Any] = {"source": unknown}
    if row.executed and row.tflops:
        extra["hardware_tflops_per_gpu"] = row.tflops
    values |= {"pilot": "imported", "simulated": False, "notes": list(row.notes), "extra_json": json_text(extra)}
    return _with_metrics(record_from(values), row)


def _given(row: Mapping[str, Any], mapping: ImportMap) -> dict[str, Any]:
    """The record's columns that the row and the map's constants state; a failed row's metrics may be any text.

    Raises ValueError of all that is wrong with the row. A fact names the column, and never quotes the cell.
    """
    given, facts = dict(mapping.constants), []
    stated = "outcome" in given or ("outcome" in mapping.columns and mapping.columns["outcome"].source in row)
    try:
        outcome = _outcome(row, mapping)
    except ValueError as error:
        outcome, facts = Outcome.OK, [str(error)]
    for name, reading in mapping.columns.items():
        if name == "outcome" or reading.source not in row:
            continue
        try:
            said = _chosen_value(row.get(reading.source), reading)
            value = None if said is None else _typed(said, reading, name)
        except ValueError as error:
            facts += [str(error)] if outcome is Outcome.OK else []
            continue
        if value is not None:
            given[name] = value
    for name, reading in mapping.columns.items():
        if name in given and BY_NAME[name].unit.startswith("tokens") and (reading.unit or "").startswith("sequences"):
            given[name] *= given.get("sequence_length", 1)
    if facts:
        raise ValueError(*facts)
    if not stated and not given.keys() & MEASURED:
        return given | {"outcome": str(Outcome.UNKNOWN), "message": "the source states neither outcome nor measurement"}
    return given | {"outcome": str(outcome)}


def _outcome(row: Mapping[str, Any], mapping: ImportMap) -> Outcome:
    reading = mapping.columns.get("outcome")
    if reading is None or reading.source not in row:
        return Outcome(mapping.constants.get("outcome", "ok"))
    cell = cell_text(row.get(reading.source))
    word = reading.values.get(cell, reading.otherwise if reading.otherwise is not None else cell)
    valid = {str(outcome) for outcome in Outcome}
    if word not in valid:
        raise ValueError(f"{reading.source} is no outcome{' that the map lists' * bool(reading.values)}")
    return Outcome(word)


def _chosen_value(cell: Any, reading: Reading) -> Any:
    """What the cell says by the map, before it gets a type; None if the source has none."""
    text = cell_text(cell)
    if reading.match is not None:
        hit = re.search(reading.match, text[:CELL_CHARACTERS])
        text = hit.group(1) if hit else ""
    found: Any = reading.values.get(text, text if not reading.values or text == "" else reading.otherwise)
    return reading.otherwise if found in ("", None) else found


def _typed(value: Any, reading: Reading, name: str) -> Any:
    column = BY_NAME[name]
    if column.type == "bool":
        text = str(value).lower()
        if text not in _SWITCH:
            raise ValueError(f"{reading.source} is neither true nor false, as {name} is")
        return _SWITCH[text]
    if column.type == "string":
        return str(value)
    times = factor(column.unit, reading.unit) or 1.0
    stated = _WITH_UNIT.fullmatch(value.strip()) if isinstance(value, str) else None
    if stated and (own := factor(column.unit, stated[2])) and ("seq" in stated[2]) == ("seq" in (reading.unit or "")):
        value, times = stated[1], own
    if isinstance(value, str) and _THOUSANDS.fullmatch(value.strip()):
        value = value.replace(",", "")
    try:
        number = float(value) * times
    except ValueError:
        raise ValueError(f"{reading.source} is not a number, as {name} is") from None
    if not math.isfinite(number):
        return None
    if column.type == "int64" and column.unit != "bytes" and number != round(number):
        raise ValueError(f"{reading.source} is not a whole number, as {name} is")
    if column.type == "int64" and abs(number) >= 2**63:
        raise ValueError(f"{reading.source} is larger than any {name}")
    return round(number) if column.type == "int64" else number


def _complete(given: dict[str, Any]) -> tuple[str, ...]:
    """Nodes, GPUs and the layout from each other: a source states some of them. Returns notes of what is assumed."""
    per_node = int(given.get("gpus_per_node", DEFAULT_GPUS_PER_NODE))
    gpus = int(given.get("gpus", 0) or given.get("nodes", 0) * per_node)
    if not gpus:
        raise ValueError("neither gpus nor nodes is stated")
    per_node = min(per_node, gpus)
    given.setdefault("nodes", -(-gpus // per_node))
    given |= {"gpus": gpus, "gpus_per_node": per_node}
    batch = given.get("global_batch_tokens")
    for axis in set(LAYOUT) - {"dp", "micro_batch_size", "grad_accum", *_OF_THE_SOURCE}:
        given.setdefault(axis, 1)
    if min(given["tp"], given["pp"], given["cp"]) < 1:
        raise ValueError("tp, pp or cp is less than 1")
    if given.get("recompute") not in (None, "none", "selective", "full"):
        raise ValueError("recompute is none, selective or full: `values` of the map state which its words mean")
    given.setdefault("dp", max(1, gpus // (given["tp"] * given["pp"] * given["cp"])))
    for name in ("model", "sequence_length"):
        if given.get(name) is None:
            raise ValueError(f"the {name.replace('_', ' ')} is not stated")
    assumed = not given.keys() & {"micro_batch_size", "grad_accum"}
    for axis, other in (("micro_batch_size", "grad_accum"), ("grad_accum", "micro_batch_size")):
        step = given["dp"] * given.get(other, 0) * given["sequence_length"]
        given.setdefault(axis, batch // step if batch and step and batch % step == 0 else 1)
    tokens = given["dp"] * given["micro_batch_size"] * given["grad_accum"] * given["sequence_length"]
    if given.setdefault("global_batch_tokens", tokens) >= 2**63:
        raise ValueError("the batch has more tokens than a record can hold")
    return ("neither micro_batch_size nor grad_accum is stated: a micro-batch is taken for one sequence",) * assumed


def _shapes(given: Mapping[str, Any], mapping: ImportMap) -> list[shapes.ModelShape]:
    """The shapes that the row's model may have: one, unless the map lists several of that name."""
    name = str(given["model"])
    found = mapping.models.get(name, ())
    if not found and (known := catalogued(name)) is not None:
        found = (MODELS[known].as_dict(),)
    if not found:
        near = nearest(name, [*mapping.models, *MODELS], "the map's models can state its shape")
        raise ValueError(f"the model is neither in the map nor in the catalogue ({near})")
    plain = [
        {key: given[item] if isinstance(item, str) and item in given else item for key, item in shape.items()}
        for shape in found
    ]
    return [shapes.ModelShape(**values) for values in plain]


def _run(given: Mapping[str, Any], shape: Mapping[str, Any], params: Mapping[str, Any]) -> Run:
    layout = {name: given[name] for name in LAYOUT_FIELDS if given.get(name) is not None}
    return Run(
        workload=str(given.get("workload") or "imported"),
        model=str(given["model"]),
        shape=shape,
        nodes=int(given["nodes"]),
        gpus_per_node=int(given["gpus_per_node"]),
        sequence_length=int(given["sequence_length"]),
        layout=Layout(**layout),
        dtype=str(given.get("dtype") or "bf16"),
        compile=bool(given.get("compile", False)),
        params=dict(params),
    )


def _chosen(row: Mapping[str, Any], choice: Reading | str | bool, key: str) -> Any:
    """The value for the row, of a key that the map states for all rows or reads from a column."""
    if not isinstance(choice, Reading):
        return choice
    cell = cell_text(row.get(choice.source))
    word = choice.values.get(cell, choice.otherwise)
    if word is None:
        raise ValueError(f"{choice.source}: the map's {key} names nothing for this value")
    return word


def _with_metrics(record: Record, row: Row) -> Record:
    """Rates, step time and efficiency of successful rows; stated values stay. Failed rows have none."""
    if record.outcome is not Outcome.OK:
        return replace(record, **vars(Rates()), **vars(Efficiency()))
    rate, derived = row.rate, row.efficiency
    stated: dict[str, Any] = {"reported_mfu": row.reported_mfu, "reported_hfu": row.reported_hfu}
    if rate is None or rate <= 0:
        known = ("flops_per_token", "flops_convention", "peak_tflops_per_gpu")
        return replace(record, **stated, **{name: getattr(derived, name) for name in known})
    stated["tflops_per_gpu"] = (None if row.executed else record.tflops_per_gpu) or derived.tflops_per_gpu
    gpus, batch = record.gpus or 1, record.global_batch_tokens or 0
    return replace(
        record,
        **(vars(derived) | stated),
        tokens_per_second_per_gpu=rate,
        tokens_per_second=record.tokens_per_second or rate * gpus,
        step_time_median_s=record.step_time_median_s or batch / rate / gpus,
    )
