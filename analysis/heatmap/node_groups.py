"""Models on several node groups, MODEL@GROUP: a row per model, and each group's node counts side by side. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def split(models: Iterable[object]) -> dict[str, tuple[str, str]]:
    """Each model's name -> (its name without the group, the group). The group is empty, and the name whole, unless
    some model is on several groups: a name may have an @ of its own.
    """
    names = [str(model) for model in models]
    parts = {name: (name.partition("@")[0], name.partition("@")[2]) for name in names}
    groups: dict[str, set[str]] = {}
    for base, group in parts.values():
        groups.setdefault(base, set()).add(group)
    if any(len(found) > 1 for found in groups.values()):
        return parts
    return {name: (name, "") for name in names}


@dataclass(frozen=True)
class Arrangement:
    """Where each cell is drawn."""

    rows: tuple[str, ...]
    columns: tuple[tuple[str, int], ...]
    """(node group, nodes), the groups side by side"""
    parts: Mapping[str, tuple[str, str]]
    """as ``split`` gives them"""

    @staticmethod
    def of(table: pd.DataFrame) -> Arrangement:
        """On a site with node groups, a node count that a group has no candidate for is left out."""
        parts = split(table["model"])
        rows = tuple(dict.fromkeys(parts[str(model)][0] for model in table["model"]))
        groups = list(dict.fromkeys(parts[str(model)][1] for model in table["model"]))
        shown = table if groups == [""] else table[table["status"] != "absent"]
        seen = {(parts[str(m)][1], int(n)) for m, n in zip(shown["model"], shown["nodes"], strict=True)}
        return Arrangement(rows, tuple(sorted(seen, key=lambda one: (groups.index(one[0]), one[1]))), parts)

    def place(self, model: object, nodes: int) -> tuple[int, int] | None:
        """(column, row) of a cell; None where its column is left out."""
        row, group = self.parts[str(model)]
        column = (group, int(nodes))
        return (self.columns.index(column), self.rows.index(row)) if column in self.columns else None

    @property
    def groups(self) -> Sequence[tuple[str, int, int]]:
        """(name, its first column, how many) of each group, where there are several."""
        names = [group for group, _ in self.columns]
        found = [(name, names.index(name), names.count(name)) for name in dict.fromkeys(names)]
        return found if len(found) > 1 else []
