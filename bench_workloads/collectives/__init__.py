"""How fast ranks exchange data: each collective over sizes, inside a node and between nodes. Its declaration.

Models of communication belong to ``sweep.physics``.
"""

from __future__ import annotations

from bench_workloads.collectives.settings import GROUPS, OPERATIONS, Settings
from sweep.contract import Workload

WORKLOAD = Workload(
    name="collectives",
    takes_listener=True,
    main="bench_workloads.collectives.main:main",
    axes=frozenset({"dp", "grad_accum", "dtype"}),
    preload=("torch", "torch.distributed", "bench_workloads.collectives.main"),
    params=Settings.defaults(),
    choices={"dtype": ("fp32", "bf16"), "operation": ("all", *OPERATIONS), "group": ("all", *GROUPS)},
)
