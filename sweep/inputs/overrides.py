"""``-o key=value``: one value of a grid replaced from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sweep.errors import Mistake, SweepError, nearest
from sweep.inputs.yaml_lines import Document, Path, load

if TYPE_CHECKING:
    from pydantic import BaseModel


def override(document: Document, options: Sequence[str], model: type[BaseModel]) -> None:
    """Put each ``dotted.key=YAML`` into the document, in order; what is wrong with an option is its mistake, too."""
    if isinstance(document.value, dict):
        for option in options:
            document.mistakes += _one(document, option, model)


def _one(document: Document, option: str, model: type[BaseModel]) -> list[Mistake]:
    where = f"-o {option[:100]}{'…' * (len(option) > 100)}"
    key, equals, text = option.partition("=")
    path: Path = tuple(part.strip() for part in key.split("."))
    if not equals or not all(path):
        return [Mistake("an override is key=value", where, remedy="such as -o nodes=[1,2] or -o timeouts.start=60")]
    if path[0] not in model.model_fields:
        return [Mistake(f"unknown key {path[0]!r}", where, remedy=nearest(str(path[0]), model.model_fields))]
    try:
        given = load(text, where)
    except SweepError as error:
        return [replace(mistake, line=None) for mistake in error.mistakes]
    if given.mistakes:
        return [replace(mistake, line=None) for mistake in given.mistakes]
    target = document.value
    for part in path[:-1]:
        if target.get(part) is None:
            target[part] = {}
        target = target[part]
        if not isinstance(target, dict):
            return [Mistake(f"{part} is not a mapping, so nothing can be set below it", where)]
    target[path[-1]] = given.value
    document.lines = {p: n for p, n in document.lines.items() if p[: len(path)] != path}
    document.lines[path] = 0
    return []
