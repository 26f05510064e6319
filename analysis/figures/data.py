"""The tables that figures are drawn from, read once for all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.derive.best import NEEDED
from analysis.derive.neighbours import STEPPED
from analysis.tables import Source, load, load_plan

if TYPE_CHECKING:
    import pandas as pd

COLUMNS: tuple[str, ...] = (*NEEDED, "node_names", "leaf_switches")
"""The record columns that figures read"""


class LackingError(Exception):
    """The data do not hold what a figure shows; the text states what is missing and how to get it."""


@dataclass(frozen=True)
class Tables:
    """The tables of one sweep or several."""

    records: pd.DataFrame
    """one row per attempt, as ``analysis.load`` gives them"""
    plan: pd.DataFrame | None = None
    """candidates, None where results came without a plan"""


def load_tables(source: Source | Iterable[Source]) -> Tables:
    """The tables of a sweep directory, a results file, or several of them.

    Raises SweepError where one is missing or not readable.
    """
    from pathlib import Path

    sources = [source] if isinstance(source, (str, Path)) else list(source)
    return Tables(
        records=load(sources, COLUMNS),
        plan=load_plan(sources, STEPPED),
    )
