"""Axes of a grid: a scalar, a list, a range, or `auto`. Different spellings of one value are equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import PlainValidator, WithJsonSchema

from sweep.contract import Scalar

Auto = Literal["auto"]
AUTO: Auto = "auto"
MAX_VALUES = 10_000

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
    for i, item in enumerate(values):
        if any(item == other and type(item) is type(other) for other in values[:i]):
            raise ValueError(f"{item!r} is in the list twice")
    return list(values)


def _range(value: dict[str, Any]) -> list[int]:
    unknown = set(value) - {"from", "to", "step", "times"}
    if unknown or not {"from", "to"} <= set(value) or {"step", "times"} <= set(value):
        raise ValueError("a range is {from: 1, to: 8}, with step: 2 (1, 3, 5, 7) or times: 2 (1, 2, 4, 8)")
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


def _integers(lowest: int, highest: int, auto: bool) -> Callable[[Any], tuple[int, ...] | Auto]:
    def read(value: Any) -> tuple[int, ...] | Auto:
        if auto and value == AUTO:
            return AUTO
        values = listed(value)
        for item in values:
            if isinstance(item, bool) or not isinstance(item, int):
                wanted = "whole numbers" + (", a range or auto" if auto else " or a range")
                raise ValueError(f"expected {wanted}, found {item!r}")
            if not lowest <= item <= highest:
                raise ValueError(f"{item} is not between {lowest} and {highest:,}")
        return tuple(values)

    return read


def _words(value: Any) -> tuple[str, ...] | Auto:
    if value == AUTO:
        return AUTO
    values = listed(value)
    for item in values:
        if not isinstance(item, str) or not item:
            raise ValueError(f"expected text or auto, found {item!r}")
    return tuple(values)


def _switches(value: Any) -> tuple[bool, ...] | Auto:
    if value == AUTO:
        return AUTO
    values = listed(value)
    for item in values:
        if not isinstance(item, bool):
            raise ValueError(f"expected true, false or auto, found {item!r}")
    return tuple(values)


def scalars(value: Any) -> tuple[Scalar, ...]:
    """Values of a parameter: text, numbers, true, false or null. Raises ValueError."""
    values = listed(value)
    for item in values:
        if item is not None and not isinstance(item, str | int | float | bool):
            raise ValueError(f"expected a scalar or a list of scalars, found {item!r}")
    return tuple(values)


def _schema(item: dict[str, Any], *, auto: bool, ranges: bool) -> WithJsonSchema:
    forms: list[dict[str, Any]] = [item, {"type": "array", "items": item, "minItems": 1}]
    forms += [{"const": AUTO}] if auto else []
    forms += [_RANGE] if ranges else []
    return WithJsonSchema({"anyOf": forms})


def _integer_schema(lowest: int, *, auto: bool) -> WithJsonSchema:
    return _schema({"type": "integer", "minimum": lowest}, auto=auto, ranges=True)


Sizes = Annotated[tuple[int, ...] | Auto, PlainValidator(_integers(1, 2**20, True)), _integer_schema(1, auto=True)]
"""positive whole numbers, or auto"""
Stages = Annotated[tuple[int, ...] | Auto, PlainValidator(_integers(0, 3, True)), _integer_schema(0, auto=True)]
"""ZeRO stages 0 to 3, or auto"""
Counts = Annotated[tuple[int, ...], PlainValidator(_integers(1, 2**20, False)), _integer_schema(1, auto=False)]
"""positive whole numbers"""
Words = Annotated[tuple[str, ...] | Auto, PlainValidator(_words), _schema({"type": "string"}, auto=True, ranges=False)]
Switches = Annotated[
    tuple[bool, ...] | Auto, PlainValidator(_switches), _schema({"type": "boolean"}, auto=True, ranges=False)
]
Values = Annotated[
    tuple[Scalar, ...],
    PlainValidator(scalars),
    _schema({"type": ["string", "number", "boolean", "null"]}, auto=False, ranges=True),
]
