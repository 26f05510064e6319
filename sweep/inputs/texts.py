"""Parameters of a grid that are a file's text: ``@FILE`` is replaced by it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sweep.contract import FILE
from sweep.errors import SweepError
from sweep.inputs.yaml_lines import Document, Path, Problem
from sweep.plugins import WORKLOAD

LONGEST_TEXT = 1 << 16
"""bytes of a parameter's text: every run of the plan and every record has a copy"""
ReadText = Callable[[str], str | None]
"""path of a file -> its text; None where it cannot be read"""


def read_texts(document: Document, read: ReadText) -> list[Problem]:
    """Replace each ``@FILE`` of the document by the text. Returns what is wrong with them."""
    problems: list[Problem] = []
    for path, values in _places(document.value):
        for name in sorted(_names(document.value) & values.keys()):
            given, many = values[name], isinstance(values[name], list)
            try:
                texts = [text_of(item, read) for item in (given if many else [given])]
                values[name] = texts if many else texts[0]
            except ValueError as error:
                problems.append(Problem((*path, name), str(error)))
    return problems


def text_of(given: Any, read: ReadText) -> Any:
    """The value, or the text of the file that it names. Raises ValueError where that is none."""
    if not isinstance(given, str) or not given.startswith(FILE):
        return given
    text = read(given.removeprefix(FILE))
    if text is None or text.startswith(FILE):
        kib = LONGEST_TEXT >> 10
        raise ValueError(f"{given[:200]} is no readable text file of at most {kib} KiB that does not begin with {FILE}")
    return text


def _names(grid: Any) -> frozenset[str]:
    try:
        return WORKLOAD.find(grid["workload"]).texts
    except (KeyError, TypeError, SweepError):  # reported with the rest of the grid
        return frozenset()


def _places(grid: Any) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Where a grid gives parameters."""
    if isinstance(grid, dict):
        lists = {key: grid.get(key) for key in ("include", "exclude")}
        points = [
            ((key, i), one) for key, many in lists.items() if isinstance(many, list) for i, one in enumerate(many)
        ]
        yield from (one for one in ((("params",), grid.get("params")), *points) if isinstance(one[1], dict))
