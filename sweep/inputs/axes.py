"""Axes of a grid: a scalar, a list, a range, or `auto`. Different spellings of one value are equal."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Annotated, Any, Literal

from pydantic import GetPydanticSchema
from pydantic_core.core_schema import no_info_plain_validator_function

from sweep.contract import Scalar

Auto = Literal["auto"]
AUTO: Auto = "auto"
MAX_VALUES = 10_000
_RANGE_SYNTAX = "a range {from: 1, to: 8}"

_RANGE = {
    "type": "object",
    "properties": {k: {"type": "integer", "minimum": 1} for k in ("from", "to", "step", "times")},
    "required": ["from", "to"],
    "additionalProperties": False,
}


def listed(value: Any) -> list[Any]:
    """The values that a scalar, a list or a range states, in order. Raises ValueError."""
    if isinstance(value, dict):
        return _range(value)
    values = value if isinstance(value, list | tuple) else [value]
    if not values:
        raise ValueError("the list is empty: omit the key, or give a value")
    if len(values) > MAX_VALUES:
        raise ValueError(f"{len(values):,} values are too many (at most {MAX_VALUES:,})")
    first: dict[Any, int] = {}
    for i, item in enumerate(values):
        j = first.setdefault((type(item), item if isinstance(item, Hashable) else repr(item)), i)
        if j != i:
            raise ValueError(f"a value is in the list twice: as item {j + 1} and {i + 1}")
    return list(values)


def shown(value: Any) -> str:
    """A value in a message: a number, a switch or a short text as it is, of all else the kind."""
    if isinstance(value, str) and (len(value) > 40 or "\n" in value):
        return "a longer text"
    kinds = {dict: "a mapping", list: "a list", tuple: "a list", type(None): "nothing"}
    return kinds.get(type(value)) or repr(value)


def _range(value: dict[str, Any]) -> list[int]:
    unknown = set(value) - {"from", "to", "step", "times"}
    if unknown or not {"from", "to"} <= set(value) or {"step", "times"} <= set(value):
        raise ValueError(f"{_RANGE_SYNTAX} may also have step: 2 (1, 3, 5, 7) or times: 2 (1, 2, 4, 8), nothing else")
    if any(isinstance(v, bool) or not isinstance(v, int) for v in value.values()):
        raise ValueError("a range needs whole numbers")
    first, last, step, times = value["from"], value["to"], value.get("step", 1), value.get("times")
    if last < first or step < 1 or (times is not None and (times < 2 or first < 1)):
        raise ValueError("a range needs from <= to, a step of at least 1 or times of at least 2")
    if times is None:
        if (last - first) // step >= MAX_VALUES:
            raise ValueError(f"the range has over {MAX_VALUES:,} values")
        return list(range(first, last + 1, step))
    values = [first]
    while values[-1] * times <= last:
        values.append(values[-1] * times)
    return values


Wrong = Callable[[Any], str | None]
"""a value of an axis -> what is wrong with it"""


def _read(value: Any, wrong: Wrong, *, auto: bool = False) -> tuple[Any, ...] | Auto:
    """``auto``, or the values of an axis. Raises ValueError with what is wrong with each."""
    if auto and value == AUTO:
        return AUTO
    values = listed(value)
    texts = list(dict.fromkeys(text for item in values if (text := wrong(item)) is not None))
    if texts:
        raise ValueError("; ".join(texts))
    return tuple(values)


def _axis(wrong: Wrong, schema: Mapping[str, Any], *, auto: bool, ranges: bool) -> GetPydanticSchema:
    """How pydantic reads an axis, and what the JSON schema says of it. ``schema``: of one of its values."""
    forms = [schema, {"type": "array", "items": schema, "minItems": 1}, *[{"const": AUTO}] * auto, *[_RANGE] * ranges]
    return GetPydanticSchema(
        lambda _source, _handler: no_info_plain_validator_function(lambda value: _read(value, wrong, auto=auto)),
        lambda _core, _handler: {"anyOf": forms},
    )


def _integers(lowest: int, highest: int, *, auto: bool = False) -> GetPydanticSchema:
    def wrong(item: Any) -> str | None:
        if isinstance(item, bool) or not isinstance(item, int):
            return f"expected whole numbers, {_RANGE_SYNTAX}{' or auto' * auto}, found {shown(item)}"
        return None if lowest <= item <= highest else f"{item} is not between {lowest} and {highest:,}"

    return _axis(wrong, {"type": "integer", "minimum": lowest}, auto=auto, ranges=True)


def _of_kind(kind: type, words: str, schema: str, *, auto: bool = False) -> GetPydanticSchema:
    def wrong(item: Any) -> str | None:
        fits = isinstance(item, kind) and (item != "" or not auto)
        return None if fits else f"expected {words}, found {shown(item)}"

    return _axis(wrong, {"type": schema}, auto=auto, ranges=False)


def _no_scalar(item: Any) -> str | None:
    fits = item is None or isinstance(item, str | int | float)
    return None if fits else f"expected text or a number, found {shown(item)}"


Sizes = Annotated[tuple[int, ...] | Auto, _integers(1, 2**20, auto=True)]
"""positive whole numbers, or auto"""
Stages = Annotated[tuple[int, ...] | Auto, _integers(0, 3, auto=True)]
"""ZeRO stages 0 to 3, or auto"""
Counts = Annotated[tuple[int, ...], _integers(1, 2**20)]
"""positive whole numbers"""
Stated = Annotated[tuple[int, ...], _integers(0, 2**20)]
"""whole numbers, of which 0 leaves the choice to the trainer"""
Texts = Annotated[tuple[str, ...], _of_kind(str, "text", "string")]
"""texts, of which the empty one leaves the choice to the trainer"""
Words = Annotated[tuple[str, ...] | Auto, _of_kind(str, "text or auto", "string", auto=True)]
Switches = Annotated[tuple[bool, ...] | Auto, _of_kind(bool, "true, false or auto", "boolean", auto=True)]
_SCALAR = {"type": ["string", "number", "boolean", "null"]}
Values = Annotated[tuple[Scalar, ...], _axis(_no_scalar, _SCALAR, auto=False, ranges=True)]


def scalars(value: Any) -> tuple[Scalar, ...]:
    """Values of a parameter: text, numbers, true, false or null. Raises ValueError."""
    return tuple(_read(value, _no_scalar))
