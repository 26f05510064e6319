"""The ``models`` of a grid: names of the catalogue and shapes written inline, to one mapping of names to shapes."""

from __future__ import annotations

import dataclasses
from typing import Any

from sweep.errors import nearest
from sweep.inputs.axes import shown
from sweep.inputs.hugging_face import is_config, shape_of_config
from sweep.inputs.yaml_lines import Document, Path, Problem
from sweep.physics.catalogue import MODELS
from sweep.physics.shapes import ModelShape

_TYPES: dict[str, type] = {"int": int, "bool": bool, "str": str}
_FIELDS = {f.name: f for f in dataclasses.fields(ModelShape)}


def read_models(document: Document) -> list[Problem]:
    """Replace the document's ``models`` by shapes. Returns what is wrong with them.

    A shape may also be the mapping of a Hugging Face config.json.

    Valid: ``[1B, {mine: {num_layers: …}}]``, ``{1B: , small: tiny-1M, mine: {num_layers: …}}``, and one name.
    """
    if not isinstance(document.value, dict) or not document.value.get("models"):
        return []
    value = document.value["models"]
    items = value if isinstance(value, list) else [value]
    shapes: dict[str, ModelShape] = {}
    problems: list[Problem] = []
    for i, item in enumerate(items):
        path: Path = ("models", i) if isinstance(value, list) else ("models",)
        for name, shape in _pairs(item, path, problems):
            if name in shapes:
                problems.append(Problem(path, f"the model {name!r} is given twice"))
            found = _shape(name, shape, (*path, name), problems)
            if found is not None:
                shapes[name] = found
            document.lines[("models", name)] = document.line((*path, name)) or 0
    # Names are sorted, so that the order of keys or of the list does not change the plan.
    document.value["models"] = {name: shapes[name] for name in sorted(shapes)}
    if not shapes and problems:
        document.value["models"] = {"1B": MODELS["1B"]}  # reported already: the rest of the grid is still checked
    return problems


def _pairs(item: Any, path: Path, problems: list[Problem]) -> list[tuple[str, Any]]:
    if isinstance(item, str | int | float) and not isinstance(item, bool):
        return [(str(item), str(item))]
    if isinstance(item, dict) and item:
        return list(item.items())
    problems.append(Problem(path, "expected a model's name, or name: shape"))
    return []


def _shape(name: str, value: Any, path: Path, problems: list[Problem]) -> ModelShape | None:
    if value is None or isinstance(value, str):
        return _known(value or name, path, problems)
    if not isinstance(value, dict):
        problems.append(Problem(path, "expected a shape: num_layers, hidden_size and so on"))
        return None
    if is_config(value):
        found, wrong = shape_of_config(value)
        problems += [Problem(path, text) for text in wrong]
        return found
    before = len(problems)
    for key in value:
        _check_field(key, value[key], (*path, key), problems)
    missing = [n for n, f in _FIELDS.items() if f.default is dataclasses.MISSING and n not in value]
    if missing:
        problems.append(Problem(path, f"the shape lacks {', '.join(missing)}"))
    if len(problems) > before:
        return None
    try:
        return ModelShape(**value)
    except ValueError as error:
        problems.append(Problem(path, str(error)))
        return None


def _known(name: str, path: Path, problems: list[Problem]) -> ModelShape | None:
    if name not in MODELS:
        remedy = f"{nearest(name, MODELS)}; or write its shape: {{{name[:20]}: {{num_layers: …}}}}"
        if name.endswith(".json"):
            remedy = f"a model by its file has a name: {{mine: {name[:60]}}}"
        problems.append(Problem(path, f"unknown model {name[:60]!r}", remedy))
    return MODELS.get(name)


def _check_field(key: str, value: Any, path: Path, problems: list[Problem]) -> None:
    if key not in _FIELDS:
        problems.append(Problem(path, f"unknown key {key!r}", nearest(key, _FIELDS)))
        return
    wanted = str(_FIELDS[key].type)
    if type(value) is not _TYPES[wanted]:
        words = {"int": "a whole number", "bool": "true or false", "str": "text"}[wanted]
        problems.append(Problem(path, f"expected {words}, found {shown(value)}"))
    elif isinstance(value, int) and not 0 <= value < 2**31:
        problems.append(Problem(path, f"{value} is out of range"))
