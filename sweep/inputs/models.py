"""The ``models`` of a grid: names of the catalogue and shapes written inline, to one mapping of names to shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sweep.errors import nearest
from sweep.inputs.hugging_face import shape_of_config
from sweep.inputs.validation import check
from sweep.inputs.yaml_lines import Document, Path, Problem
from sweep.physics.catalogue import MODELS, catalogued
from sweep.physics.shapes import ModelShape

ReadConfig = Callable[[str], Mapping[str, Any] | None]
"""path of a config.json -> its mapping; None where it cannot be read"""


def read_models(document: Document, read_config: ReadConfig) -> list[Problem]:
    """Replace the document's ``models`` by shapes. Returns what is wrong with them.

    A shape may also be the mapping of a Hugging Face config.json, or the path of one.

    Valid: ``[1B, {mine: {num_layers: …}}]``, ``{1B: , small: tiny-1M, mine: {num_layers: …}}``, and one name.
    """
    if not isinstance(document.value, dict) or "models" not in document.value:
        return []
    value = document.value["models"] or []
    items = value if isinstance(value, list) else [value]
    shapes: dict[str, ModelShape] = {}
    problems = [] if items else [Problem(("models",), "no model is given", "such as models: [8B]")]
    for i, item in enumerate(items):
        path: Path = ("models", i) if isinstance(value, list) else ("models",)
        for name, shape in _pairs(item, path, problems):
            if name in shapes:
                problems.append(Problem(path, f"the model {name!r} is given twice"))
            read, wrong = _shape(name, shape, (*path, name), read_config)
            problems += wrong
            if read is not None:
                shapes[name] = read
            document.lines[("models", name)] = document.line((*path, name)) or 0
    # Names are sorted, so that the order of keys or of the list does not change the plan.
    document.value["models"] = {name: shapes[name] for name in sorted(shapes)}
    if not shapes and problems:
        document.value["models"] = {"1B": MODELS["1B"]}  # reported already: the rest of the grid is still checked
    return problems


def _pairs(item: Any, path: Path, problems: list[Problem]) -> list[tuple[str, Any]]:
    if isinstance(item, str | int | float) and not isinstance(item, bool):
        name = str(item) if str(item).endswith(".json") else catalogued(str(item)) or str(item)
        return [(name, name)]
    if isinstance(item, dict) and item:
        return list(item.items())
    problems.append(Problem(path, "expected a model's name, or name: shape"))
    return []


def _shape(name: str, value: Any, path: Path, read_config: ReadConfig) -> tuple[ModelShape | None, list[Problem]]:
    if isinstance(value, str) and value.endswith(".json") and value != name:
        file, value = value, read_config(value)
        if value is None:
            return None, [Problem(path, f"{file[:200]} is not a readable config.json")]
    if value is None or isinstance(value, str):
        return _known(value or name, path)
    if not isinstance(value, dict):
        return None, [Problem(path, "expected a shape: num_layers, hidden_size and so on")]
    if "model_type" in value or "num_hidden_layers" in value:  # a config.json
        shape, texts = shape_of_config(value)
        return shape, [Problem(path, text) for text in texts]
    sizes = ((key, size) for key, size in value.items() if type(size) is int)
    wrong = {key: Problem((*path, key), f"{size} is out of range") for key, size in sizes if not 0 <= size < 2**31}
    read, problems = check(ModelShape, {key: 1 if key in wrong else size for key, size in value.items()}, path)
    if wrong:  # what they make of the whole shape says nothing
        problems = [problem for problem in problems if problem.path != path or "missing" in problem.fact]
    return (None if wrong else read), [*wrong.values(), *problems]


def _known(name: str, path: Path) -> tuple[ModelShape | None, list[Problem]]:
    if (known := catalogued(name)) is not None:
        return MODELS[known], []
    remedy = f"{nearest(name, MODELS)}; or write its shape: {{{name[:20]}: {{num_layers: …}}}}"
    if name.endswith(".json"):
        remedy = f"a model by its file has a name: {{mine: {name[:60]}}}"
    return None, [Problem(path, f"unknown model {name[:60]!r}", remedy)]
