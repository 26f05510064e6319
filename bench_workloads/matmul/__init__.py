"""How fast a device multiplies: a model's matrices, square ones, the best SwiGLU width. Its declaration.

Peaks of GPUs belong to ``sweep.physics.hardware``.
"""

from __future__ import annotations

from bench_workloads.matmul.settings import Settings
from sweep.contract import Rule, Workload

WORKLOAD = Workload(
    name="matmul",
    main="bench_workloads.matmul.main:main",
    axes=frozenset({"dp", "tp", "cp", "micro_batch_size", "grad_accum", "dtype"}),
    preload=("torch", "bench_workloads.matmul.main"),
    params=Settings.defaults(),
    choices={"dtype": ("fp32", "bf16")},
    rules=(
        Rule(
            name="heads_by_tp",
            broken=lambda c: (c["num_heads"] % c["tp"] != 0) | (c["num_kv_heads"] % c["tp"] != 0),
            reason="{num_heads} and {num_kv_heads} heads cannot be split over tp={tp}",
        ),
        Rule(
            name="mlp_by_tp",
            broken=lambda c: c["intermediate_size"] % c["tp"] != 0,
            reason="an MLP of width {intermediate_size} cannot be split evenly over tp={tp}",
        ),
    ),
)
