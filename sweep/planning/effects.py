"""Where an axis or a parameter has an effect. Elsewhere its value is the default, and what differs by it alone is one
candidate: a schedule without a pipeline, a dispatcher without expert parallelism.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sweep.contract import FORMATS, Layout, Run, Scalar, Workload

Condition = Callable[[Mapping[str, Any]], Any]
IN_8_BITS = ("fp8", "fp4", *FORMATS)
GENERAL: Mapping[str, Condition] = {
    "pp_schedule": lambda c: c["pp"] > 1,
    "virtual_stages": lambda c: c["pp"] > 1,
    "pipeline_layout": lambda c: c["pp"] > 1,
    "recompute_modules": lambda c: c["recompute"] == "selective",
    "recompute_layers": lambda c: c["recompute"] != "none",
    "etp": lambda c: c["num_experts"] > 0,
    "dispatcher": lambda c: c["ep"] > 1,
    "ep_overlap": lambda c: c["ep"] > 1,
    "tp_overlap": lambda c: c["tp"] > 1,
    "fp8_params": lambda c: np.isin(c["dtype"], IN_8_BITS),
    "routing": lambda c: c["num_experts"] > 0,
}
"""of any workload; ``Workload.effects`` adds its own and replaces these"""


def effects_of(workload: Workload) -> dict[str, tuple[Scalar, Condition]]:
    """Axis or parameter -> (its default, where it has an effect), each after those that its condition may read."""
    return {name: (_plain(name, workload), condition) for name, condition in {**GENERAL, **workload.effects}.items()}


def _plain(name: str, workload: Workload) -> Scalar:
    found: Scalar = next((getattr(kind, name) for kind in (Layout, Run) if hasattr(kind, name)), None)
    return workload.params.get(name, found)


def with_effect(columns: Mapping[str, Any], workload: Workload) -> dict[str, Any]:
    """One candidate's columns with the default of each axis and parameter that has no effect."""
    found = dict(columns)
    for name, (plain, condition) in effects_of(workload).items():
        if name in found and not np.all(condition(found)):
            found[name] = plain
    return found
