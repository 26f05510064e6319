"""Base class of all workloads' settings: a run's parameters, as a frozen dataclass with their defaults."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

    from sweep.contract import Run


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parameters:
    """Base of a workload's settings: each field is a parameter that a grid may give."""

    @classmethod
    def of(cls, run: Run) -> Self:
        """The parameters of a run, defaults filled in. Raises ValueError for one that does not exist."""
        if unknown := sorted(set(run.params) - set(cls.defaults())):
            raise ValueError(f"{run.workload} has no parameter {', '.join(unknown)}")
        return cls(**run.params)

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Every parameter with its default."""
        return {field.name: field.default for field in dataclasses.fields(cls)}
