"""Simulated training without a model: ranks sleep for computed times and inject faults. Its declaration.

Nothing here is a measurement: records are marked as simulated.
"""

from __future__ import annotations

from bench_workloads.simulated.settings import FAULTS, Settings
from bench_workloads.transformer.rules import ARITHMETIC_RULES
from sweep.contract import LAYOUT, Workload
from sweep.physics.schedules import SCHEDULES

WORKLOAD = Workload(
    name="simulated",
    main="bench_workloads.simulated.main:main",
    axes=frozenset({*LAYOUT, "dtype", "compile"}),
    preload=("bench_workloads.simulated.main",),
    params=Settings.defaults(),
    choices={
        "zero": (0, 1, 2, 3),
        "recompute": ("none", "selective", "full"),
        "pp_schedule": SCHEDULES,
        "dtype": ("fp32", "bf16", "fp8"),
        "compile": (False, True),
    },
    rules=ARITHMETIC_RULES,
    one_process_param="one_process_per_node",
)

__all__ = ["FAULTS", "WORKLOAD"]
