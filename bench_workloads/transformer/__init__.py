"""The training benchmark: a decoder spread over dp, tp, pp, cp and ep, trained on synthetic tokens. Its declaration.

Formulas of what a layout needs belong to ``sweep.physics``; other trainers to ``bench_workloads.trainers``.
"""

from __future__ import annotations

from bench_workloads.transformer.rules import RULES
from bench_workloads.transformer.settings import CHOICES, Settings
from bench_workloads.transformer.stages import SCHEDULES
from sweep.contract import Workload

PRELOAD = (
    "torch",
    "torch.distributed",
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
    "torch.distributed.pipelining",
    "torch._dynamo",
    "bench_workloads.transformer.main",
)

WORKLOAD = Workload(
    name="transformer",
    takes_listener=True,
    main="bench_workloads.transformer.main:main",
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
    preload=PRELOAD,
    params=Settings.defaults(),
    choices={
        "zero": (0, 1, 2, 3),
        "recompute": ("none", "selective", "full"),
        "pp_schedule": SCHEDULES,
        "dtype": ("fp32", "bf16", "fp8"),
        "compile": (False, True),
        **CHOICES,
    },
    rules=RULES,
)
