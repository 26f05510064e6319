"""A rehearsal without a model: ranks sleep as long as a formula says, and act faults out. Its declaration.

Nothing here is a measurement: records say so.
"""

from __future__ import annotations

import dataclasses

from bench_workloads.simulated.settings import FAULTS, Settings
from bench_workloads.transformer.rules import ARITHMETIC_RULES
from bench_workloads.transformer.stages import SCHEDULES
from sweep.contract import Workload

WORKLOAD = Workload(
    name="simulated",
    main="bench_workloads.simulated.main:main",
    axes=frozenset(
        {
            "dp",
            "tp",
            "pp",
            "cp",
            "ep",
            "zero",
            "micro_batch_size",
            "grad_accum",
            "recompute",
            "pp_schedule",
            "dtype",
            "compile",
        }
    ),
    preload=("bench_workloads.simulated.main",),
    params={f.name: f.default for f in dataclasses.fields(Settings)},  # type: ignore[misc]
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
