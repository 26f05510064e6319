"""The training benchmark: a decoder spread over dp, tp, pp, cp and ep, trained on synthetic tokens. Its declaration.

Formulas of what a layout needs belong to ``sweep.physics``; other trainers to ``bench_workloads.trainers``.
"""

from __future__ import annotations

from bench_workloads.transformer.rules import FP8_RECIPES, RULES
from bench_workloads.transformer.settings import CHOICES, Settings
from sweep.contract import LAYOUT, ROUTINGS, Workload
from sweep.physics.schedules import SCHEDULES

WORKLOAD = Workload(
    name="transformer",
    takes_listener=True,
    main="bench_workloads.transformer.main:main",
    axes=frozenset({*LAYOUT, "dtype", "fp8_params", "compile", "etp", "virtual_stages", "recompute_layers", "routing"}),
    lacks={
        "pipeline_layout": "stages hold as many layers as make the heaviest as light as possible",
        "recompute_modules": "selective recomputation keeps the outputs of matrix products and attention",
        "dispatcher": "tokens travel by torch's all-to-all",
        "tp_overlap": "params.async_tp is torch's asynchronous tensor parallelism, of compiled layers",
        "ep_overlap": "the exchange of tokens is awaited",
        "cuda_graphs": "collectives have not been run in CUDA graphs",
    },
    preload=(
        "torch",
        "torch.distributed",
        "torch.distributed.fsdp",
        "torch.distributed.tensor.parallel",
        "torch.distributed.pipelining",
        "torch._dynamo",
        "bench_workloads.transformer.main",
    ),
    compiles_on_gpu=True,
    params=Settings.defaults(),
    choices={
        "zero": (0, 1, 2, 3),
        "recompute": ("none", "selective", "full"),
        "pp_schedule": SCHEDULES,
        "dtype": ("fp32", "bf16", "fp8", "mxfp8", *FP8_RECIPES),
        "compile": (False, True),
        "routing": ROUTINGS,
        **CHOICES,
    },
    rules=RULES,
)
