"""From plain values to frozen pydantic models, or all that is wrong with them, each with its path and a remedy.

What the keys of a file mean are the strings below the attributes of its class, read from the source by what shows them:
pydantic's ``use_attribute_docstrings`` would read them at every import: 70 ms for each command and pilot.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
import itertools
import json
import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeVar, get_args

from pydantic import TypeAdapter, ValidationError

from sweep.errors import Mistake, SweepError, nearest, plural
from sweep.inputs.axes import shown
from sweep.inputs.yaml_lines import Document, Path, Problem

Model = TypeVar("Model")

SAFE_NAME = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}"
SAFE_NAME_WORDS = "letters, digits and . _ + -, starting with a letter or digit, at most 64"
_DURATION = re.compile(r"^(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?:in)?)?(?:(\d+(?:\.\d+)?)s)?$")
_CLOCK = re.compile(r"^(?:(\d+)-)?(\d+):(\d\d)(?::(\d\d))?$")
_AMOUNT = re.compile(r"^((?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e\d{1,2})?)\s*([KMGT]i?|B)?$", re.IGNORECASE)
_PERCENT = re.compile(r"^(\d+(?:\.\d+)?) ?%$")
_SCALE = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}
_WORDS = {
    "Input should be": "expected",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid tuple": "a list",
    "a valid dictionary": "a mapping",
    "a valid string": "text",
    "a valid boolean": "true or false",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "greater than": "over",
    "less than": "under",
}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def check(model: type[Model], value: Any, path: Path = ()) -> tuple[Model | None, list[Problem]]:
    """The value as the model (or dataclass), or None and all that is wrong with it.

    ``path``: where the value is in its document.
    """
    if not isinstance(value, dict):
        fact = f"expected keys with values, found {_found({'input': value})}"
        return None, [Problem(path, fact, "write `key: value` lines")]
    adapter = TypeAdapter(model)
    try:
        if dataclasses.is_dataclass(model):  # as JSON: of Python values, a strict one takes no mapping
            return adapter.validate_json(json.dumps(value)), []
        return adapter.validate_python(value), []
    except ValidationError as error:
        return None, [_problem(model, path, dict(item)) for item in error.errors(include_url=False)]


def check_kind(document: Document, what: str, known: Iterable[str], main: Sequence[str]) -> None:
    """Raises SweepError where fewer than half of the document's keys are those of its kind, or similar, and fewer than
    two of the ``main`` ones are there.

    Then it is another file, given by mistake: one message, and nothing of it is quoted.
    """
    remedy = f"a {what} has keys such as {', '.join(main)}"
    if document.mistakes and not document.value:  # nothing else is left of it
        raise SweepError(document.mistakes)
    if not isinstance(document.value, dict):
        raise SweepError(Mistake(f"not a {what}: expected `key: value` lines", document.file, 1, remedy=remedy))
    names = list(known)
    near = [key for key in document.value if key in names or difflib.get_close_matches(key, names, n=1, cutoff=0.7)]
    if not near or (2 * len(near) < len(document.value) and len(document.value.keys() & set(main)) < 2):
        fact = f"not a {what}: of its {plural(len(document.value), 'key')}, {len(near)} are those of a {what}"
        raise SweepError(Mistake(fact, document.file, 1, remedy=remedy))


def seconds(value: Any) -> float:
    """A duration: 300, "90s", "30m", "4h", "1h30m", "2d", or as Slurm writes it, "4:00:00" and "1-00:00:00".

    Raises ValueError.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        total = float(value)
    else:
        text = str(value).strip()
        clock = _CLOCK.match(text)
        match = clock if clock and (clock[1] or clock[4]) else _DURATION.match(text)
        if not match or not text:
            raise ValueError(f"{text!r} is not a duration: write 4h, 30m, 90s, 1h30m or 1-00:00:00")
        days, hours, minutes, rest = (float(part or 0) for part in match.groups())
        total = days * 86400 + hours * 3600 + minutes * 60 + rest
    if not 0 < total < 366 * 86400:
        raise ValueError(f"{value!r} is not a duration between 0 and a year")
    return total


def share(value: Any) -> Any:
    """A fraction: 0.01 or "1%". Other values are left to the type's own check."""
    match = _PERCENT.match(value.strip()) if isinstance(value, str) else None
    return float(match[1]) / 100 if match else value


def fraction(value: Any) -> float:
    """As ``share``, from 0 to below 1. Raises ValueError."""
    try:
        found = float(share(value))
    except ValueError:
        found = math.nan
    if not 0 <= found < 1:
        raise ValueError(f"{value!r} is not a fraction from 0% to below 100%: write 3% or 0.03")
    return found


def amount(value: Any) -> int:
    """A count: 1048576, "1M" (1,000,000), "1Mi" (1,048,576), "2.36M", "8.03B", "1e12". Raises ValueError."""
    if isinstance(value, bool):
        raise ValueError("expected a number, not true or false")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    match = _AMOUNT.match(str(value).strip().replace("_", ""))
    if not match:
        raise ValueError(f"{value!r} is not a count: write 1048576, 1M (1,000,000) or 1Mi (1,048,576)")
    unit = (match[2] or "").lower()
    number = Fraction(match[1].replace(",", "")) * (_BINARY.get(unit) or _SCALE[unit])
    if number.denominator != 1 or not 1 <= number < 2**50:
        raise ValueError(f"{value!r} is not a positive whole number in a sensible range")
    return int(number)


def amount_text(value: int) -> str:
    """The short form of a count if there is an exact one: 1Mi, 2M, else with separators."""
    for unit, scale in (*reversed(_BINARY.items()), *reversed(_SCALE.items())):
        if unit and value % scale == 0 and 1 <= value // scale < 1024:
            return f"{value // scale}{unit[0].upper()}{unit[1:]}"
    return f"{value:,}"


def _problem(model: type[Any], base: Path, error: dict[str, Any]) -> Problem:
    loc: Path = tuple(error["loc"])
    kind = error["type"]
    fact = _fact(error)
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        known = _keys(model, loc[:-1])
        return Problem((*base, *loc), f"unknown key {str(loc[-1])!r}", nearest(str(loc[-1]), known))
    if kind in ("missing", "missing_argument", "missing_keyword_only_argument"):
        return Problem((*base, *loc[:-1]), f"{loc[-1]} is missing", f"add {loc[-1]}: …")
    if kind in ("model_type", "dataclass_type"):
        keys = ", ".join(_keys(model, loc))
        return Problem((*base, *loc), f"expected a mapping, found {_found(error)}", f"its keys: {keys}")
    if kind == "tuple_type":
        return Problem((*base, *loc), fact, "write it in brackets, or each item on a line of its own after `- `")
    return Problem((*base, *loc), fact)


def _fact(error: dict[str, Any]) -> str:
    message = str(error["msg"])
    if error["type"] == "value_error":
        return message.removeprefix("Value error, ")
    for pydantic_words, words in _WORDS.items():
        message = message.replace(pydantic_words, words)
    return f"{message}, found {_found(error)}"


def _found(error: dict[str, Any]) -> str:
    value = error.get("input")
    return "text" if isinstance(value, str) and not _PERCENT.match(value) else shown(value)


def _keys(model: type[Any], loc: Sequence[str | int]) -> list[str]:
    """The keys that are valid below the place."""
    current: Any = model
    for part in loc:
        fields = getattr(current, "model_fields", {})
        if part in fields:
            # The model in an annotation such as ``Site | None`` or ``dict[str, ModelShape]``
            inside = (fields[part].annotation, *get_args(fields[part].annotation))
            current = next((p for p in inside if hasattr(p, "model_fields") or dataclasses.is_dataclass(p)), inside[0])
    if dataclasses.is_dataclass(current):
        return [f.name for f in dataclasses.fields(current)]
    fields = getattr(current, "model_fields", {})
    return [str(field.validation_alias or name) for name, field in fields.items() if not field.exclude]


def meanings(model: type) -> dict[str, str]:
    """Attribute -> the string below it, in the class and those that it inherits from."""
    meaning_of: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if each.__module__.startswith("sweep."):
            meaning_of |= _of_source(inspect.getsource(each))
    return meaning_of


def _of_source(source: str) -> dict[str, str]:
    (definition,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(definition, ast.ClassDef)
    meaning_of = {}
    for attribute, below in itertools.pairwise(definition.body):
        if isinstance(attribute, ast.AnnAssign) and isinstance(attribute.target, ast.Name):
            match below:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    meaning_of[attribute.target.id] = inspect.cleandoc(text)
    return meaning_of


def describe(schema: dict[str, Any], root: type, classes: Iterable[type]) -> None:
    """Add the meanings to a JSON schema of ``root``, whose definitions are of ``classes``."""
    of_name: Mapping[str, type] = {each.__name__: each for each in classes}
    parts = [(schema, root), *((part, of_name[name]) for name, part in schema.get("$defs", {}).items())]
    for part, model in parts:
        for name, text in meanings(model).items():
            if name in part.get("properties", {}):
                part["properties"][name]["description"] = text
