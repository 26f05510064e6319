"""External trainers, benchmarked unmodified: one small file per trainer, each with an `ADAPTER` and its workload.

Shared code belongs to ``driver``; the adapter's interface, to ``adapter``.
"""

from __future__ import annotations

TRAINERS: dict[str, str] = {
    "command": "bench_workloads.trainers.command:ADAPTER",
    "deepspeed": "bench_workloads.trainers.deepspeed:ADAPTER",
    "megatron": "bench_workloads.trainers.megatron:ADAPTER",
    "nanotron": "bench_workloads.trainers.nanotron:ADAPTER",
    "nemo": "bench_workloads.trainers.nemo:ADAPTER",
    "picotron": "bench_workloads.trainers.picotron:ADAPTER",
    "torchtitan": "bench_workloads.trainers.torchtitan:ADAPTER",
}
"""name -> "module:attribute" of a ``bench_workloads.trainers.adapter.Adapter``; the module's ``WORKLOAD`` is what a
grid names. Other packages register their ``WORKLOAD`` under the entry point group ``sweep.workloads``, and their
``ADAPTER`` under ``sweep.trainers``, so that the best configuration can be exported."""

WORKLOADS: dict[str, str] = {name: target.replace(":ADAPTER", ":WORKLOAD") for name, target in TRAINERS.items()}
"""the same, as workloads"""
