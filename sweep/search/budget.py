"""What a search may spend: runs, node-hours, wall time; in all or in each cell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sweep.errors import Mistake, SweepError
from sweep.search.candidates import Bools
from sweep.search.known import Known
from sweep.search.learning import Floats


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits of a search; None where there is none. Raises SweepError where a limit is not positive."""

    runs: int | None = None
    runs_per_cell: int | None = None
    node_hours: float | None = None
    node_hours_per_cell: float | None = None
    wall_s: float | None = None
    """seconds since the search began"""

    def __post_init__(self) -> None:
        wrong = [name for name, value in vars(self).items() if value is not None and not value > 0]
        if wrong:
            raise SweepError([Mistake(f"{name} must be positive", path=f"budget.{name}") for name in wrong])

    def affordable(self, known: Known, seconds: Floats, elapsed_s: float = 0.0) -> Bools:
        """Which runs can still be paid for. ``seconds``: what each run took, or is expected to take."""
        c = known.candidates
        hours = c.nodes * seconds / 3600
        spent = np.bincount(c.cells[known.begun], hours[known.begun], minlength=len(c.cell_names))
        free: Bools = ~known.begun
        if self.wall_s is not None:
            free &= elapsed_s + seconds <= self.wall_s
        if self.runs is not None and int(known.tries.sum()) >= self.runs:
            free &= False
        if self.runs_per_cell is not None:
            free &= (known.tries < self.runs_per_cell)[c.cells]
        if self.node_hours is not None:
            free &= spent.sum() + hours <= self.node_hours
        if self.node_hours_per_cell is not None:
            free &= spent[c.cells] + hours <= self.node_hours_per_cell
        return free
