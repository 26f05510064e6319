"""What Megatron-LM and what is built on its training loop print, and how each splits a run."""

from __future__ import annotations

from collections.abc import Callable

from bench_workloads.trainers.reading import PatternReader
from bench_workloads.trainers.units import NUMBER
from sweep.contract import Scalar

STATED: dict[str, tuple[str, Callable[[str], Scalar]]] = {
    "world_size": (r"using world size: (\d+)", int),
    "dp": (r"data-parallel size: (\d+)", int),
    "cp": (r"(?: context-parallel size|^\s+context_parallel_size): (\d+)", int),
    "tp": (r"(?:tensor-model-parallel size:|initialized tensor model parallel with size) (\d+)", int),
    "pp": (r"(?:pipeline-model-parallel size:|initialized pipeline model parallel with size) (\d+)", int),
    "ep": (r"^\s+expert_model_parallel_size \.+ (\d+)", int),
    "micro_batch_size": (r"^\s+micro_batch_size(?: \.+|:) (\d+)", int),
    "sequence_length": (r"^\s+seq_length \.+ (\d+)", int),
    "global_batch_sequences": (r"global batch size:\s+(\d+) \|", int),
    "recompute": (r"^\s+recompute_granularity \.+ (\w+)", lambda text: text.lower()),
}
"""Megatron-LM's first words, its table of arguments (`_print_args`), Megatron-Bridge's YAML of the final configuration
(`run_config`), what both say of process groups, and the iterations' own batch"""


def iterations() -> PatternReader:
    """`training_log`, the last rank's line, and `report_memory` of every rank that is the first of its replicas.

    The latter comes after the first two iterations, in MiB from Megatron-LM and in 10^9 bytes from Megatron-Bridge.
    """
    return PatternReader(
        r"\biteration\s+(\d+)/\s*\d+ \|",
        {
            "step_time_ms": rf"elapsed time per iteration \(ms\): ({NUMBER})",
            "tflops_per_gpu": rf"throughput per GPU \(TFLOP/s/GPU\): ({NUMBER})",
            "loss": rf"lm loss: ({NUMBER})",
            "grad_norm": rf"grad norm: ({NUMBER})",
            "skipped_iterations": rf"number of skipped iterations:\s+({NUMBER})",
            "allocated_mib": rf"max allocated: ({NUMBER})",
            "reserved_mib": rf"max reserved: ({NUMBER})",
            "allocated_gb": rf"mem-max-allocated-gigabytes: ({NUMBER})",
            "reserved_gb": rf"mem-max-reserved-gigabytes: ({NUMBER})",
        },
        STATED,
        begun=r"\[before the start of training step\]|training \.\.\.$",
    )
