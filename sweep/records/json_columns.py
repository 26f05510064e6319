"""Columns that hold JSON: values without a column of their own. Pure."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""A value that JSON can write"""


def json_text(value: Mapping[str, Json]) -> str:
    """Sorted JSON; a number that JSON cannot represent becomes null."""
    return json.dumps(_finite(value), sort_keys=True, separators=(",", ":"), default=str)


def over_ranks(values: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """Merge many ranks' values: equal values once, numbers as their spread, else the first rank's."""
    return {key: _spread([v[key] for v in values if key in v]) for key in dict.fromkeys(k for v in values for k in v)}


def numbers_of(value: object) -> Sequence[float]:
    """A list of numbers that a record states; empty where that is anything else."""
    whole = isinstance(value, list) and all(type(one) in (int, float) for one in value)
    return value if isinstance(value, list) and whole else ()


def _spread(values: Sequence[Json]) -> Json:
    numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    if len(numbers) < len(values) or all(value == values[0] for value in values):
        return values[0]
    most = max(range(len(numbers)), key=numbers.__getitem__)
    return {"min": min(numbers), "median": statistics.median(numbers), "max": numbers[most], "max_rank": most}


def _finite(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
