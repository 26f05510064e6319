"""Axes of a grid: a scalar, a list, a range, or `auto`. Different spellings of one value are equal."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Annotated, Any, Literal

from pydantic import PlainValidator, WithJsonSchema

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


def _reader(wrong: Callable[[Any], str | None], *, auto: bool) -> Callable[[Any], Any]:
    """Reads the values of an axis, or ``auto``: a tuple, or ValueError with what ``wrong`` says of each."""

    def read(value: Any) -> tuple[Any, ...] | Auto:
        if auto and value == AUTO:
            return AUTO
        values = listed(value)
        texts = list(dict.fromkeys(text for item in values if (text := wrong(item)) is not None))
        if texts:
            raise ValueError("; ".join(texts))
        return tuple(values)

    return read


def _integers(lowest: int, highest: int, *, auto: bool) -> Callable[[Any], Any]:
    def wrong(item: Any) -> str | None:
        if isinstance(item, bool) or not isinstance(item, int):
            return f"expected whole numbers, {_RANGE_SYNTAX}{' or auto' * auto}, found {shown(item)}"
        return None if lowest <= item <= highest else f"{item} is not between {lowest} and {highest:,}"

    return _reader(wrong, auto=auto)


def _of_kind(kinds: tuple[type, ...], words: str, *, auto: bool) -> Callable[[Any], Any]:
    def wrong(item: Any) -> str | None:
        fits = isinstance(item, kinds) and (item != "" or not auto)
        return None if fits else f"expected {words}, found {shown(item)}"

    return _reader(wrong, auto=auto)


scalars: Callable[[Any], tuple[Scalar, ...]] = _of_kind(
    (str, int, float, bool, type(None)), "text or a number", auto=False
)
"""Values of a parameter: text, numbers, true, false or null. Raises ValueError."""


def _schema(item: dict[str, Any], *, auto: bool, ranges: bool) -> WithJsonSchema:
    forms: list[dict[str, Any]] = [item, {"type": "array", "items": item, "minItems": 1}]
    forms += [{"const": AUTO}] if auto else []
    forms += [_RANGE] if ranges else []
    return WithJsonSchema({"anyOf": forms})


def _integer_schema(lowest: int, *, auto: bool) -> WithJsonSchema:
    return _schema({"type": "integer", "minimum": lowest}, auto=auto, ranges=True)


Sizes = Annotated[tuple[int, ...] | Auto, PlainValidator(_integers(1, 2**20, auto=True)), _integer_schema(1, auto=True)]
"""positive whole numbers, or auto"""
Stages = Annotated[tuple[int, ...] | Auto, PlainValidator(_integers(0, 3, auto=True)), _integer_schema(0, auto=True)]
"""ZeRO stages 0 to 3, or auto"""
Counts = Annotated[tuple[int, ...], PlainValidator(_integers(1, 2**20, auto=False)), _integer_schema(1, auto=False)]
"""positive whole numbers"""
Stated = Annotated[tuple[int, ...], PlainValidator(_integers(0, 2**20, auto=False)), _integer_schema(0, auto=False)]
"""whole numbers, of which 0 leaves the choice to the trainer"""
Texts = Annotated[
    tuple[str, ...],
    PlainValidator(_of_kind((str,), "text", auto=False)),
    _schema({"type": "string"}, auto=False, ranges=False),
]
"""texts, of which the empty one leaves the choice to the trainer"""
Words = Annotated[
    tuple[str, ...] | Auto,
    PlainValidator(_of_kind((str,), "text or auto", auto=True)),
    _schema({"type": "string"}, auto=True, ranges=False),
]
Switches = Annotated[
    tuple[bool, ...] | Auto,
    PlainValidator(_of_kind((bool,), "true, false or auto", auto=True)),
    _schema({"type": "boolean"}, auto=True, ranges=False),
]
Values = Annotated[
    tuple[Scalar, ...],
    PlainValidator(scalars),
    _schema({"type": ["string", "number", "boolean", "null"]}, auto=False, ranges=True),
]
