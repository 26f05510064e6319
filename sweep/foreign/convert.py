"""Rows of a foreign table to records: values read by the map, derived columns computed, what is odd said in notes."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sweep.contract import LAYOUT, Layout, Run
from sweep.errors import Mistake, SweepError
from sweep.foreign.mapping import BY_NAME, ImportMap, Reading
from sweep.foreign.units import factor
from sweep.outcomes import Outcome
from sweep.physics import flops, shapes
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.records.schema import COLLECTED, COLUMNS

MOST_MISTAKES = 20
DEFAULT_GPUS_PER_NODE = 8


def records_of_rows(rows: Sequence[Mapping[str, Any]], mapping: ImportMap, file: str) -> list[dict[str, Any]]:
    """One record per row, in their order. Raises SweepError naming the rows (lines of the file) that cannot be read."""
    if rows:
        _check_sources(rows[0], mapping, file)
    mistakes: list[Mistake] = []
    seen: Counter[str] = Counter()
    found = []
    for line, row in enumerate(rows, start=2):
        try:
            found.append(_record(row, mapping, seen))
        except (ValueError, TypeError) as error:
            mistakes.append(Mistake(str(error), file, line))
    if mistakes:
        rest = len(mistakes) - MOST_MISTAKES
        more = [Mistake(f"and {rest} further rows that cannot be read", file)] if rest > 0 else []
        raise SweepError(mistakes[:MOST_MISTAKES] + more)
    return found


def unknown_columns(columns: Sequence[str], mapping: ImportMap) -> list[str]:
    """Columns of the source that the map does not read."""
    read = {reading.source for reading in mapping.columns.values()}
    if isinstance(mapping.flops, Reading):
        read.add(mapping.flops.source)
    return [name for name in columns if name not in read]


def _check_sources(row: Mapping[str, Any], mapping: ImportMap, file: str) -> None:
    """Columns that the map names and the table lacks; a map of the schema itself takes what there is."""
    plain = all(reading == Reading(source=name) for name, reading in mapping.columns.items())
    needed = ("model", "sequence_length", "nodes") if plain else mapping.columns
    lacking = [n for n in needed if n in mapping.columns and mapping.columns[n].source not in row]
    if lacking:
        remedy = f"its columns are {', '.join(row)}"
        raise SweepError(
            [
                Mistake(f"no column {mapping.columns[n].source!r}, which gives {n}", file, 1, remedy=remedy)
                for n in lacking
            ]
        )


def _record(row: Mapping[str, Any], mapping: ImportMap, seen: Counter[str]) -> dict[str, Any]:
    given = _given(row, mapping)
    _complete(given)
    run = _run(given, _shape(given, mapping))
    repeat = seen[run.run_id]
    seen[run.run_id] += 1
    if repeat:
        run = Run(**{**{name: getattr(run, name) for name in run.__dataclass_fields__}, "repeat": repeat})
    record: dict[str, Any] = dict.fromkeys(column.name for column in COLUMNS + COLLECTED)
    record |= {name: value for name, value in given.items() if name in record}
    record |= {"run_id": run.run_id, "attempt": 1, "repeat": repeat, "sweep_name": mapping.name, "final": True}
    record |= {"surplus": False, "simulated": False, "pilot": "imported", "notes": []}
    record |= {name: getattr(run.layout, name) for name in LAYOUT} | {"workload": run.workload}
    record |= {"dtype": run.dtype, "compile": run.compile, "params_json": "{}", "env_json": "{}"}
    record["shape_json"] = json.dumps(dict(run.shape), sort_keys=True)
    _derive(record, shapes.ModelShape(**run.shape), _convention(row, mapping))  # type: ignore[arg-type]
    kept = {name: row[name] for name in unknown_columns(list(row), mapping)}
    record["extra_json"] = json.dumps({"source": kept}, sort_keys=True, default=str)
    return record


def _given(row: Mapping[str, Any], mapping: ImportMap) -> dict[str, Any]:
    """The record's columns that the row and the map's constants state; a failed row may write anything for a metric."""
    given = dict(mapping.constants)
    outcome = _outcome(row, mapping)
    for name, reading in mapping.columns.items():
        if name == "outcome" or reading.source not in row:
            continue
        try:
            value = _value(row.get(reading.source), reading, name)
        except ValueError:
            if outcome is Outcome.OK:
                raise
            value = None
        if value is not None:
            given[name] = value
    return given | {"outcome": str(outcome)}


def _outcome(row: Mapping[str, Any], mapping: ImportMap) -> Outcome:
    if "outcome" not in mapping.columns or mapping.columns["outcome"].source not in row:
        return Outcome(mapping.constants.get("outcome", "ok"))
    reading = mapping.columns["outcome"]
    cell = _text(row.get(reading.source))
    word = reading.values.get(cell, reading.otherwise if reading.otherwise is not None else cell)
    valid = {str(outcome) for outcome in Outcome}
    if word not in valid:
        raise ValueError(f"{reading.source} is {cell!r}, which the map's outcome does not know")
    return Outcome(word)


def _value(cell: Any, reading: Reading, name: str) -> Any:
    """One value in the record's type and unit; None where the source says nothing."""
    text = _text(cell)
    if reading.match is not None:
        hit = re.search(reading.match, text)
        text = hit.group(1) if hit else ""
    found: Any = reading.values.get(text, text if not reading.values or text == "" else reading.otherwise)
    found = reading.otherwise if found in ("", None) else found
    if found is None:
        return None
    return _typed(found, reading, name)


def _typed(value: Any, reading: Reading, name: str) -> Any:
    column = BY_NAME[name]
    if column.type == "bool":
        return value if isinstance(value, bool) else str(value).lower() in ("true", "1", "yes")
    if column.type == "string":
        return str(value)
    try:
        number = float(value) * (factor(column.unit, reading.unit) or 1.0)
    except ValueError:
        raise ValueError(f"{reading.source} is {value!r}, no number for {name}") from None
    if column.type == "int64" and column.unit != "bytes" and number != round(number):
        raise ValueError(f"{reading.source} is {value!r}, and {name} is a whole number")
    return round(number) if column.type == "int64" else number


def _text(cell: Any) -> str:
    if cell is None or (isinstance(cell, float) and cell != cell):
        return ""
    if isinstance(cell, bool):
        return str(cell).lower()
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def _complete(given: dict[str, Any]) -> None:
    """Nodes, GPUs and the layout from each other: a source states some of them."""
    per_node = int(given.get("gpus_per_node", DEFAULT_GPUS_PER_NODE))
    gpus = int(given.get("gpus", 0) or given.get("nodes", 0) * per_node)
    if not gpus:
        raise ValueError("neither gpus nor nodes is stated")
    per_node = min(per_node, gpus)
    given.setdefault("nodes", -(-gpus // per_node))
    given |= {"gpus": gpus, "gpus_per_node": per_node}
    for axis in ("tp", "pp", "cp", "ep", "micro_batch_size", "grad_accum"):
        given.setdefault(axis, 1)
    given.setdefault("dp", max(1, gpus // (given["tp"] * given["pp"] * given["cp"])))
    given.setdefault("zero", 0)
    tokens = given["dp"] * given["micro_batch_size"] * given["grad_accum"] * given["sequence_length"]
    given.setdefault("global_batch_tokens", tokens)


def _shape(given: Mapping[str, Any], mapping: ImportMap) -> dict[str, Any]:
    name = str(given["model"])
    shape = mapping.models.get(name)
    if shape is None and name in MODELS:
        shape = MODELS[name].as_dict()
    if shape is None:
        raise ValueError(f"the model {name!r} stands neither in the map nor in the catalogue")
    plain = {key: given[item] if isinstance(item, str) and item in given else item for key, item in shape.items()}
    return shapes.ModelShape(**plain).as_dict()


def _run(given: Mapping[str, Any], shape: Mapping[str, Any]) -> Run:
    layout = {name: given[name] for name in LAYOUT if given.get(name) is not None}
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
    )


def _convention(row: Mapping[str, Any], mapping: ImportMap) -> flops.FlopsConvention:
    if isinstance(mapping.flops, str):
        return flops.CONVENTIONS[mapping.flops]
    reading, cell = mapping.flops, _text(row.get(mapping.flops.source))
    word = reading.values.get(cell, reading.otherwise)
    if word is None:
        raise ValueError(f"{reading.source} is {cell!r}, and the map's flops names no convention for it")
    return flops.CONVENTIONS[word]


def _derive(record: dict[str, Any], shape: shapes.ModelShape, convention: flops.FlopsConvention) -> None:
    """Parameters, and for what worked its rates, step time, FLOPs, MFU and HFU. Rates that are stated stay."""
    record["parameters_total"] = int(shapes.total_parameters(shape))
    record["parameters_active"] = int(shapes.active_parameters(shape))
    per_token = flops.model_flops_per_token(shape, record["sequence_length"], convention)
    record |= {"flops_per_token": float(per_token), "flops_convention": f"{convention.name}: {convention.source}"}
    gpu = GPUS.get(str(record["gpu"]))
    peak = gpu.peak_flops(record["dtype"]) if gpu else None
    record["peak_tflops_per_gpu"] = None if peak is None else peak / 1e12
    rate = _rate(record)
    if rate is None or record["outcome"] != str(Outcome.OK):
        return
    executed = flops.hardware_flops_per_token(shape, record["sequence_length"], record["recompute"], convention)
    record["tokens_per_second_per_gpu"] = rate
    record["tokens_per_second"] = record["tokens_per_second"] or rate * record["gpus"]
    record["step_time_median_s"] = record["step_time_median_s"] or record["global_batch_tokens"] / rate / record["gpus"]
    record["mfu"] = flops.utilisation(rate, per_token, peak)
    record["hfu"] = flops.utilisation(rate, executed, peak)
    record["tflops_per_gpu"] = record["tflops_per_gpu"] or rate * per_token / 1e12


def _rate(record: Mapping[str, Any]) -> float | None:
    """Tokens per second and GPU, from whatever the source states."""
    if record["tokens_per_second_per_gpu"] is not None:
        return float(record["tokens_per_second_per_gpu"])
    if record["tokens_per_second"] is not None:
        return float(record["tokens_per_second"]) / int(record["gpus"])
    if record["step_time_median_s"]:
        return float(record["global_batch_tokens"] / record["step_time_median_s"] / record["gpus"])
    return None
