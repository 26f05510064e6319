"""Which layouts a trainer runs, for the commands that list layouts without a grid: as its workload declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sweep.contract import LAYOUT

if TYPE_CHECKING:
    from sweep.contract import Workload
    from sweep.physics.sizing import Refused


def what_it_runs(trainer: str) -> tuple[Mapping[str, Any], Refused]:
    """(values of an axis, a test of layouts) by the workload of the trainer's name; all, where there is none."""
    from sweep.plugins import WORKLOAD

    if trainer not in WORKLOAD.names():
        return {}, lambda _: False
    workload = WORKLOAD.find(trainer)
    axes = {name: values for name, values in workload.choices.items() if name in LAYOUT and name != "pp_schedule"}
    return axes, lambda columns: _broken(workload, columns)


def _broken(workload: Workload, columns: Mapping[str, Any]) -> Any:
    given = {"compile": False, **workload.params, **columns}
    broken = np.zeros(np.shape(columns["tp"]), dtype=bool)
    for rule in workload.rules:
        try:
            broken |= np.broadcast_to(np.asarray(rule.broken(given), dtype=bool), broken.shape)
        except (KeyError, TypeError):  # it reads a column of a plan that a question about layouts has not
            continue
    return broken
