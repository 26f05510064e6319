"""Rows of one configuration in a foreign table: measurements of it, or one measurement stated again. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

from sweep.foreign.row import Row

Number = tuple[int, int]


def numbers(rows: Sequence[Row]) -> list[Number]:
    """(repeat, attempt) of each row. Two runs do not give equal figures: such a row is a further record of the first.

    It is a further attempt, which does not count: repeats that agree to the last digit would make a lead clear.
    """
    known: dict[str, list[tuple[Row, int]]] = defaultdict(list)
    found = []
    for row in rows:
        measurements = known[row.run.run_id]
        for repeat, (other, records) in enumerate(measurements):
            if _equal(row, other):
                measurements[repeat] = (other, records + 1)
                found.append((repeat, records + 1))
                break
        else:
            measurements.append((row, 1))
            found.append((len(measurements) - 1, 1))
    return found


def _equal(row: Row, other: Row) -> bool:
    """Whether both state one rate, and no other memory."""
    if row.stated_rate is None or row.stated_rate != other.stated_rate:
        return False
    memory = {row.given.get("peak_memory_bytes"), other.given.get("peak_memory_bytes")} - {None}
    return len(memory) < 2 and row.given["outcome"] == other.given["outcome"]


def differing(
    keys: Sequence[Hashable], rows: Sequence[Mapping[str, Any]], measured: Collection[str]
) -> list[str | None]:
    """For each row a note where those of equal ``keys`` differ in a column of texts: maybe they are no repeats.

    ``measured``: columns of the source that the map reads as measurements.
    """
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for place, key in enumerate(keys):
        groups[key].append(place)
    names = _texts(rows, measured)
    found: list[str | None] = [None] * len(rows)
    for places in groups.values():
        several = [name for name in names if len({rows[place].get(name) for place in places}) > 1]
        for place in places if several else ():
            found[place] = (
                f"{len(places)} rows of the source have this configuration, but differ in {', '.join(several)}"
            )
    return found


def _texts(rows: Sequence[Mapping[str, Any]], measured: Collection[str]) -> list[str]:
    """Columns with texts that group the rows: some are equal, and they are not numbers."""
    found = []
    for name in rows[0] if rows else ():
        values = [row.get(name) for row in rows]
        texts = [value for value in values if isinstance(value, str) and value]
        if name not in measured and texts and len(set(texts)) < len(texts) and not all(map(_is_number, texts)):
            found.append(name)
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
