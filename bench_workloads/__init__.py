"""What ranks run: the project's own workloads.

Each is a `sweep.contract.Workload`, found by name. Others may register theirs by an entry point of the same shape.
"""

from __future__ import annotations

from bench_workloads import trainers

WORKLOADS: dict[str, str] = {
    "transformer": "bench_workloads.transformer:WORKLOAD",
    "simulated": "bench_workloads.simulated:WORKLOAD",
    "collectives": "bench_workloads.collectives:WORKLOAD",
    "matmul": "bench_workloads.matmul:WORKLOAD",
    **trainers.WORKLOADS,
}
