"""MLPerf Training's results as a table: python -m benchmarks.accuracy.

Benchmarks of several vendors on NVIDIA's NeMo: Llama-3.1 405B from scratch, Llama-2 70B with adapters; 8,192 tokens per
sequence, which the reference implementations of both fix. What a configuration does not state keeps the model's
assumption. Adapters are on the attention's matrices (--lora_target_modules "qkv_proj,o_proj" --lora_dropout 0.1 in
llama2_70b_lora/README.md of mlcommons/training).
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.reference_tables import FROZEN, Row, Table, interleaved, read, table_of
from sweep.physics.catalogue import MODELS

_MODELS = {"llama31_405b": "Llama-3.1-405B", "llama2_70b_lora": "Llama-2-70B", "llama31_8b": "Llama-3-8B"}
_KINDS = {"NVL-141GB": "h200-nvl"}
_SEQUENCE = 8192


def mlperf_tables() -> list[Table]:
    """A table per benchmark and round."""
    rounds = sorted({row["round"] for row in _all()})
    return [
        table_of(f"MLPerf {number}, {model}", _rows(number, benchmark), trainer="NeMo (MLPerf)")
        for number in rounds
        for benchmark, model in _MODELS.items()
        if any(row["round"] == number and row["benchmark"] == benchmark for row in _all())
    ]


def _all() -> list[dict[str, str]]:
    return read("mlperf_v5_0.csv")


def _rows(number: str, benchmark: str) -> Iterator[Row]:
    for row in _all():
        if (row["round"], row["benchmark"]) != (number, benchmark):
            continue
        ways = {axis: int(row[axis] or 1) for axis in ("dp", "tp", "pp", "cp", "ep")}
        micro, batch = int(row["micro_batch_size"] or 1), int(row["global_batch_size"])
        adapters = benchmark.endswith("lora")
        yield ways | {
            "gpu": next((kind for part, kind in _KINDS.items() if part in row["accelerator"]), row["gpu"]),
            "trainer": "megatron",
            "profile": FROZEN | {"adapts_output": True, "dropout": True} if adapters else {},
            "zero": 1,
            "micro_batch_size": micro,
            "grad_accum": max(batch // (ways["dp"] * micro), 1),
            "sequence_length": int(row["seq_len"] or _SEQUENCE),
            "dtype": "fp8" if "fp8" in row["precision"] else "bf16",
            "gpus_per_node": int(row["gpus_per_node"]),
            "recompute": row["recompute"] or "none",
            "tp_overlap": row["tp_comm_overlap"] in ("True", "1"),
            "cuda_graphs": "attn" if row["cuda_graph"] in ("True", "1") else "none",
            **interleaved(int(row["vpp"] or 1) if ways["pp"] > 1 else 1),
            "shape": MODELS[_MODELS[benchmark]],
            "seconds": float(row["step_s"]),
            "label": f"{row['submitter']} {row['num_gpus']} {row['gpu']} tp {ways['tp']} cp {ways['cp']}",
        }
