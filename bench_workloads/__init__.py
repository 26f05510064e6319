"""What ranks run: the project's own workloads, and external trainers as workloads.

Each is a ``sweep.contract.Workload``, found by name. Other packages can register theirs by an entry point.
Starting, watching and clearing ranks belongs to ``sweep.pilot``; torch is imported in the files that ranks run only.
"""

from __future__ import annotations

from bench_workloads import trainers

WORKLOADS: dict[str, str] = {
    "transformer": "bench_workloads.transformer:WORKLOAD",
    "simulated": "bench_workloads.simulated:WORKLOAD",
    **trainers.WORKLOADS,
}
