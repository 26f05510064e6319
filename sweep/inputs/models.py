"""The ``models`` of a grid: names of the catalogue and shapes written inline, to one mapping of names to shapes."""

from __future__ import annotations

import dataclasses
from typing import Any

from sweep.errors import nearest
from sweep.inputs.yaml_lines import Document, Path
from sweep.physics.catalogue import MODELS
from sweep.physics.shapes import ModelShape

_TYPES: dict[str, type] = {"int": int, "bool": bool, "str": str}
_FIELDS = {f.name: f for f in dataclasses.fields(ModelShape)}


def read_models(document: Document) -> None:
    """Replace the document's ``models`` by shapes; what is wrong goes to the document's mistakes.

    Valid: ``[1B, {mine: {num_layers: …}}]``, ``{1B: , small: tiny-1M, mine: {num_layers: …}}``, and one name.
    """
    if not isinstance(document.value, dict) or not document.value.get("models"):
        return
    value = document.value["models"]
    items = value if isinstance(value, list) else [value]
    shapes: dict[str, ModelShape] = {}
    before = len(document.mistakes)
    for i, item in enumerate(items):
        path: Path = ("models", i) if isinstance(value, list) else ("models",)
        for name, shape in _pairs(document, item, path):
            if name in shapes:
                document.mistakes.append(document.mistake(f"the model {name!r} stands twice", path))
            found = _shape(document, name, shape, (*path, name))
            if found is not None:
                shapes[name] = found
            document.lines[("models", name)] = document.line((*path, name)) or 0
    # Names are sorted, so that the order of keys or of the list makes no other plan.
    document.value["models"] = {name: shapes[name] for name in sorted(shapes)}
    if not shapes and len(document.mistakes) > before:
        document.value["models"] = {"1B": MODELS["1B"]}  # said already: the rest of the grid is still checked


def _pairs(document: Document, item: Any, path: Path) -> list[tuple[str, Any]]:
    if isinstance(item, str | int | float) and not isinstance(item, bool):
        return [(str(item), str(item))]
    if isinstance(item, dict) and item:
        return list(item.items())
    document.mistakes.append(document.mistake("expected a model's name, or name: shape", path))
    return []


def _shape(document: Document, name: str, value: Any, path: Path) -> ModelShape | None:
    if value is None or isinstance(value, str):
        return _known(document, value or name, path)
    if not isinstance(value, dict):
        document.mistakes.append(document.mistake("expected a shape: num_layers, hidden_size and so on", path))
        return None
    before = len(document.mistakes)
    for key in value:
        _check_field(document, key, value[key], (*path, key))
    missing = [n for n, f in _FIELDS.items() if f.default is dataclasses.MISSING and n not in value]
    if missing:
        document.mistakes.append(document.mistake(f"the shape lacks {', '.join(missing)}", path))
    if len(document.mistakes) > before:
        return None
    try:
        return ModelShape(**value)
    except ValueError as error:
        document.mistakes.append(document.mistake(str(error), path))
        return None


def _known(document: Document, name: str, path: Path) -> ModelShape | None:
    if name not in MODELS:
        remedy = f"{nearest(name, MODELS)}; or write its shape: {{{name[:20]}: {{num_layers: …}}}}"
        document.mistakes.append(document.mistake(f"unknown model {name[:60]!r}", path, remedy))
    return MODELS.get(name)


def _check_field(document: Document, key: str, value: Any, path: Path) -> None:
    if key not in _FIELDS:
        document.mistakes.append(document.mistake(f"unknown key {key!r}", path, nearest(key, _FIELDS)))
        return
    wanted = str(_FIELDS[key].type)
    if type(value) is not _TYPES[wanted]:
        words = {"int": "a whole number", "bool": "true or false", "str": "a word"}[wanted]
        document.mistakes.append(document.mistake(f"expected {words}, found {value!r:.40}", path))
    elif isinstance(value, int) and not 0 <= value < 2**31:
        document.mistakes.append(document.mistake(f"{value} is out of range", path))
