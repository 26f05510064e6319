"""`--filter "zero <= 1 and model == '8B'"`: the conditions of a grid's constraints, over the columns of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sweep import expressions
from sweep.errors import Mistake, SweepError, nearest

if TYPE_CHECKING:
    import pandas as pd

_GRAMMAR = "compare columns with < <= == != > >= in, join with and, or, not: zero <= 1 and model in ('1B', '8B')"


def keep(records: pd.DataFrame, expression: str) -> pd.DataFrame:
    """The rows for which the expression is known to hold: with null, neither a comparison nor its negation holds.

    Raises SweepError where it is not an expression, or names an unknown column.
    """
    names = names_in(expression)
    known = list(records.columns)
    remedies = {n: nearest(n, known, otherwise="docs/records.md lists the columns") for n in names if n not in known}
    if remedies:
        raise SweepError([Mistake(f"no column {n!r}", path="--filter", remedy=r) for n, r in remedies.items()])
    try:
        holds = expressions.holds(expression, {name: _column(records[name]) for name in names})
    except ValueError as error:
        raise _mistake(error) from error
    return records[np.broadcast_to(holds, len(records))]


def names_in(expression: str) -> tuple[str, ...]:
    """The columns that an expression names. Raises SweepError where it is not an expression."""
    try:
        return expressions.names_in(expression)
    except ValueError as error:
        raise _mistake(error) from error


def _column(series: pd.Series[Any]) -> Any:
    """The column as numpy's own kinds (text: objects), nulls masked."""
    own = getattr(series.dtype, "numpy_dtype", series.dtype)
    is_number = isinstance(own, np.dtype) and own.kind in "biuf"
    kind: Any = own if is_number else object
    unknown = series.isna().to_numpy()
    if not unknown.any():
        return series.to_numpy(dtype=kind)
    any_value = series[~unknown].iloc[0] if not unknown.all() else 0 if is_number else ""
    return np.ma.array(series.to_numpy(dtype=kind, na_value=any_value), mask=unknown)


def _mistake(error: ValueError) -> SweepError:
    return SweepError(Mistake(str(error), path="--filter", remedy=_GRAMMAR))
