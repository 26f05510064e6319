"""Rules that several checks share: a floor, a bound, a text that must be there. From a JSON value to a finding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweep.checks.check import Finding, Json, Rule, Stated, Verdict

UNITS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def quantity(number: float, unit: str) -> str:
    """4.53e11, B/s: 453 GB/s."""
    if unit in ("B", "B/s", "FLOP/s"):
        for scale, prefix in UNITS:
            if abs(number) >= scale:
                return f"{number / scale:.3g} {prefix}{unit}"
    return f"{number:.3g} {unit}".rstrip()


def number_of(value: Json, key: str = "") -> float:
    """A number in a reading. Raises ValueError: then the check's verdict is UNKNOWN."""
    found = (value.get(key) if isinstance(value, Mapping) else None) if key else value
    if isinstance(found, bool) or not isinstance(found, (int, float)) or found != found:
        raise ValueError(f"{key or 'value'} is no number: {found!r}")
    return float(found)


def rows_of(value: Json) -> list[Mapping[str, Json]]:
    """The rows in a reading. Raises ValueError where there are none."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(r, Mapping) for r in value):
        raise ValueError("value is no list of rows")
    return [row for row in value if isinstance(row, Mapping)]


def values_of(value: Json) -> Mapping[str, Json]:
    """The values of a reading, by name. Raises ValueError where it has none."""
    if not isinstance(value, Mapping):
        raise ValueError("the reading is no mapping")
    return value


def judged(
    fine: bool, found: str, expected: str, *, otherwise: Verdict = Verdict.BELOW_FLOOR, number: float | None = None
) -> Finding:
    """OK where it is fine, or else the other verdict."""
    return Finding(verdict=Verdict.OK if fine else otherwise, found=found, expected=expected, number=number)


def at_least(floor: float, unit: str, key: str = "") -> Rule:
    """The number must be at least this."""

    def rule(value: Json, _: Stated) -> Finding:
        number = number_of(value, key)
        return judged(number >= floor, quantity(number, unit), f"at least {quantity(floor, unit)}", number=number)

    return rule


def at_most(ceiling: float, unit: str, *, verdict: Verdict = Verdict.BELOW_FLOOR) -> Rule:
    """The number must be at most this."""

    def rule(value: Json, _: Stated) -> Finding:
        number = number_of(value)
        expected = f"at most {quantity(ceiling, unit)}"
        return judged(number <= ceiling, quantity(number, unit), expected, otherwise=verdict, number=number)

    return rule


def each_row(wrong: Mapping[str, str], total: int, expected: str, *, verdict: Verdict = Verdict.BELOW_FLOOR) -> Finding:
    """``wrong``: which of the rows is wrong -> how."""
    if not wrong:
        return Finding(verdict=Verdict.OK, found=f"{total} of {total}", expected=expected)
    found = "; ".join(f"{name}: {what}" for name, what in list(wrong.items())[:8])
    return Finding(verdict=verdict, found=found, expected=expected)


def shown(value: Json, _: Stated) -> Finding:
    """Only shown, or compared with the other nodes: no rule of its own."""
    if value is None or value == "":
        raise ValueError("nothing was read")
    text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, Mapping) else str(value)
    return Finding(verdict=Verdict.OK, found=text)
