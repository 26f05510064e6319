"""A best configuration as text to copy: shell arguments, and a grid that measures it again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.tables import known, layout_names, plain_values
from sweep.physics.catalogue import MODELS
from sweep.stated import shell_words, stated_shape, stated_values

SETTING = ("sequence_length", "global_batch_tokens", "dtype", "compile")


def usage_of(cell: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """(what it is for, text) of a best configuration's record."""
    texts = [("flags", as_flags(cell, stated_values(cell, "params_json")))]
    grid = as_grid(cell)
    return texts if grid is None else [*texts, ("grid that measures it again", grid)]


def as_flags(values: Mapping[str, Any], params: Mapping[str, Any]) -> str:
    """Layout, batch, number format and the workload's parameters as shell arguments; unknown values are left out."""
    stated = plain_values(values, (*layout_names(values), *SETTING)) | dict(params)
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in stated.items()}
    return shell_words(f"--{name.replace('_', '-')}={text}" for name, text in texts.items())


def as_grid(cell: Mapping[str, Any]) -> str | None:
    """A grid file with this one candidate, or None where the record lacks a required field of a grid."""
    model = _model(cell)
    values = plain_values(cell, ("nodes", *layout_names(cell), *SETTING))
    if model is None or not {"nodes", "sequence_length", "global_batch_tokens", "dp", "tp", "pp"} <= set(values):
        return None
    values["global_batch"] = values.pop("global_batch_tokens")
    lines = ["name: again", *_workload(cell), f"models: {json.dumps(model)}"]
    return "\n".join([*lines, *(f"{name}: {json.dumps(value)}" for name, value in values.items())])


def plain_record(cell: Mapping[str, Any]) -> dict[str, Any]:
    """A record's scalar values for JSON: missing is None."""
    return dict.fromkeys(cell) | plain_values(cell, [name for name in cell if np.ndim(cell[name]) == 0])


def _workload(cell: Mapping[str, Any]) -> list[str]:
    """The workload and its parameters; imported records are measured again by the default one."""
    if cell.get("pilot") == "imported" or not known(cell.get("workload")):
        return []
    params = stated_values(cell, "params_json")
    return [f"workload: {json.dumps(cell['workload'])}"] + [f"params: {json.dumps(params)}"] * bool(params)


def _model(cell: Mapping[str, Any]) -> list[str] | dict[str, Any] | None:
    """The model as a grid names it: by the catalogue's name where its shape is that, else with its shape."""
    name = str(cell["model"])
    shape = stated_shape(cell)
    if name in MODELS and shape in (None, MODELS[name]):
        return [name]
    return {name: shape.as_dict()} if shape else None
