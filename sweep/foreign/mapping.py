"""The map of a foreign table: the meaning of its columns. Written in YAML, checked as a whole.

columns:                       # column of the record: column of the source, or how to read it
  nodes: nodes
  peak_memory_bytes: {from: peak_mem_gib, unit: GiB}
  tp: {from: parallelism, match: 'TP (\\d+)', otherwise: 1}
  outcome: {from: status, values: {success: ok, failed: unknown}}
constants: {gpu: h100, workload: nanotron}
params: {kernel: kernel}                          # further parts of the configuration, read as columns are
models: {1B: 1B, mine: {num_layers: 4, ...}}      # name in the source: model of the catalogue, or a shape
                               # [80B, 70B]: the source gives several sizes this name; a row has the one that it states
flops: playbook                # convention of mfu, or {from: column, values: {...}, otherwise: ...}
flops_counted: model           # or executed: the source's TFLOPS and MFU include what is recomputed (HFU)
frozen_weights: false          # true: only adapters are trained (LoRA)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sweep.errors import SweepError, nearest
from sweep.inputs.axes import shown
from sweep.inputs.validation import check, check_kind
from sweep.inputs.yaml_lines import Document, Path, Problem
from sweep.outcomes import Outcome
from sweep.physics.catalogue import MODELS, catalogued
from sweep.physics.flops import CONVENTIONS
from sweep.physics.hardware import GIB
from sweep.physics.shapes import ModelShape
from sweep.records.schema import COLUMNS

_KEYS = ("name", "columns", "constants", "params", "models", "flops", "flops_counted", "frozen_weights")
_CHOICES: Mapping[str, tuple[Any, ...]] = {
    "flops": tuple(CONVENTIONS),
    "flops_counted": ("model", "executed"),
    "frozen_weights": (False, True),
}
"""key -> its valid values, for all rows or by a column of the source; the first is the default, but for flops"""
BY_NAME = {column.name: column for column in COLUMNS}
_NEEDED = ("model", "sequence_length")
_RESERVED = frozenset({"run_id", "attempt", "repeat", "shape_json", "flops_per_token", "flops_convention", "suspect"})


class Reading(BaseModel):
    """How one value is read from a row of the source."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)

    source: str = Field(validation_alias="from")
    unit: str | None = None
    match: str | None = None
    """regular expression whose first group is the value"""
    values: dict[str, Any] = {}
    """what the source writes -> what it means"""
    otherwise: Any = None
    """value if the source is empty, or nothing matches"""

    @field_validator("match")
    @classmethod
    def _has_a_group(cls, text: str | None) -> str | None:
        try:
            if text is None or re.compile(text).groups:
                return text
        except re.error:
            pass
        raise ValueError(f"{text!r} is not a regular expression with a group")

    @property
    def meanings(self) -> list[Any]:
        """Every value that the map gives."""
        return [*self.values.values(), *([] if self.otherwise is None else [self.otherwise])]


@dataclass(frozen=True, kw_only=True)
class ImportMap:
    """A checked map."""

    name: str
    columns: Mapping[str, Reading]
    constants: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Reading] = field(default_factory=dict)
    """parameter of the trainer -> how to read it"""
    models: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    """name in the source -> fields of the shapes that it stands for, mostly one; a text value names a column of the
    record (learned_positions)"""
    flops: Reading | str = "matmul-causal"
    flops_counted: Reading | str = "model"
    frozen_weights: Reading | bool = False
    flops_stated: bool = True
    """False: the map does not state how the source counts FLOPs, so its MFU and TFLOPS cannot be checked"""


def read_map(document: Document) -> ImportMap:
    """The map of a YAML document. Raises SweepError with every mistake in it."""
    value = document.value
    check_kind(document, "map", _KEYS, ("columns", "constants", "models", "flops"))
    problems = [Problem((key,), f"unknown key {key!r}", nearest(str(key), _KEYS)) for key in value if key not in _KEYS]
    stated = _mapping(value, "constants", problems)
    found = ImportMap(
        name=str(value.get("name", "imported")),
        columns=_columns(_mapping(value, "columns", problems), problems),
        constants={name: item for name, item in stated.items() if _known(name, ("constants", name), problems)},
        params=_params(_mapping(value, "params", problems), problems),
        models=_models(_mapping(value, "models", problems), problems),
        **{key: _choice(key, value[key], problems) for key in _CHOICES if key in value},
        flops_stated="flops" in value,
    )
    given = found.columns.keys() | found.constants.keys()
    missing = [name for name in _NEEDED if name not in given] + ["nodes"] * (not given & {"nodes", "gpus"})
    problems += [Problem(("columns",), f"no column gives {name}") for name in missing]
    if mistakes := document.located(problems):
        raise SweepError(mistakes)
    return found


def plain_map(name: str) -> ImportMap:
    """The map of a table whose columns have the record's names and units already."""
    names = [column.name for column in COLUMNS if not column.type.startswith("list<") and column.name not in _RESERVED]
    return ImportMap(name=name, columns={n: Reading(source=n) for n in names}, flops_stated=False)


def _mapping(document: Mapping[str, Any], key: str, problems: list[Problem]) -> dict[str, Any]:
    value = document.get(key) or {}
    if isinstance(value, dict):
        return value
    problems.append(Problem((key,), f"expected names and values, found {shown(value)}"))
    return {}


def _columns(given: Mapping[str, Any], problems: list[Problem]) -> dict[str, Reading]:
    found = {}
    for name, value in given.items():
        path: Path = ("columns", name)
        reading = _reading(value, path, problems) if _known(name, path, problems) else None
        if reading is None:
            continue
        unit = BY_NAME[name].unit
        if factor(unit, reading.unit) is None:
            valid = ", ".join(FACTORS.get(unit, {})) or "it has no unit"
            problems.append(Problem(path, f"{reading.unit!r} is not a unit of {name}", f"one of: {valid}"))
        if name == "outcome":
            problems += _not_among(reading.meanings, tuple(map(str, Outcome)), "an outcome", path)
        found[name] = reading
    return found


def _params(given: Mapping[str, Any], problems: list[Problem]) -> dict[str, Reading]:
    found = {str(name): _reading(value, ("params", name), problems) for name, value in given.items()}
    units = [name for name, reading in found.items() if reading is not None and reading.unit is not None]
    problems += [Problem(("params", name), "a parameter has no unit") for name in units]
    return {name: reading for name, reading in found.items() if reading is not None}


def _known(name: str, path: Path, problems: list[Problem]) -> bool:
    if name in _RESERVED:
        problems.append(Problem(path, f"{name} is derived, not read"))
    elif name not in BY_NAME:
        problems.append(Problem(path, f"{name!r} is not a column of a record", nearest(str(name), BY_NAME)))
    return name in BY_NAME and name not in _RESERVED


def _reading(value: Any, path: Path, problems: list[Problem]) -> Reading | None:
    reading, wrong = check(Reading, {"from": value} if isinstance(value, str) else value, path)
    problems += wrong
    return reading


def cell_text(value: Any) -> str:
    """As written in a table cell; empty where there is none."""
    if value is None or (isinstance(value, float) and value != value):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _not_among(words: list[Any], valid: tuple[Any, ...], what: str, path: Path) -> list[Problem]:
    return [
        Problem(path, f"{word!r} is not {what}", nearest(str(word), [cell_text(one) for one in valid]))
        for word in words
        if word not in valid or isinstance(word, bool) != isinstance(valid[0], bool)
    ]


def _models(given: Mapping[str, Any], problems: list[Problem]) -> dict[str, tuple[Mapping[str, Any], ...]]:
    found: dict[str, tuple[Mapping[str, Any], ...]] = {}
    for name, value in given.items():
        several = value if isinstance(value, list) and value else [value]
        shapes = [_model(one, ("models", name), problems) for one in several]
        found[str(name)] = tuple(shape for shape in shapes if shape is not None)
    return found


def _model(value: Any, path: Path, problems: list[Problem]) -> Mapping[str, Any] | None:
    if isinstance(value, dict):
        of_columns = {key for key, item in value.items() if isinstance(item, str) and item in BY_NAME}
        problems += check(ModelShape, {key: 1 if key in of_columns else item for key, item in value.items()}, path)[1]
        return value
    if (known := catalogued(str(value))) is not None:
        return MODELS[known].as_dict()
    problems.append(Problem(path, f"unknown model {value!r}", nearest(str(value), MODELS)))
    return None


def _choice(key: str, value: Any, problems: list[Problem]) -> Any:
    """One of the key's values, or how to read it from a column; both checked."""
    chosen = _reading(value, (key,), problems) if isinstance(value, dict) else value
    words = chosen.meanings if isinstance(chosen, Reading) else [] if isinstance(value, dict) else [value]
    what = "a convention" if key == "flops" else f"a value of {key}"
    problems += _not_among(words, _CHOICES[key], what, (key,))
    return chosen


FACTORS: dict[str, dict[str, float]] = {
    "bytes": {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": GIB, "KB": 1e3, "MB": 1e6, "GB": 1e9},
    "fraction": {"fraction": 1, "%": 0.01, "percent": 0.01},
    "s": {"s": 1, "ms": 1e-3, "us": 1e-6, "min": 60, "h": 3600},
    "unix s": {"unix s": 1},
    "tokens/s": {"tokens/s": 1, "K tokens/s": 1e3, "M tokens/s": 1e6, "sequences/s": 1},
    "tokens/s/GPU": {"tokens/s/GPU": 1, "K tokens/s/GPU": 1e3, "M tokens/s/GPU": 1e6, "sequences/s/GPU": 1},
    "1e12 FLOP/s": {"1e12 FLOP/s": 1, "TFLOP/s": 1, "TFLOPS": 1, "GFLOP/s": 1e-3, "PFLOP/s": 1e3},
    "FLOP": {"FLOP": 1, "GFLOP": 1e9, "TFLOP": 1e12},
    "tokens": {"sequences": 1, "tokens": 1, "K tokens": 1e3, "M tokens": 1e6},
    "sequences": {"sequences": 1},
    "parameters": {"parameters": 1, "million": 1e6, "billion": 1e9},
}
"""unit of the record's column -> unit of the source -> factor; of sequences still times their length"""


def factor(record_unit: str, source_unit: str | None) -> float | None:
    """The factor for a source's number, 1 if it states no unit; None if the units are incompatible."""
    if source_unit is None or source_unit == record_unit:
        return 1.0
    return FACTORS.get(record_unit, {}).get(source_unit)
