"""Can grids state what vendors publish? Each pre-training row of a table as a grid, planned and configured.

`SWEEP_REFERENCE_DATA=DIR python -m benchmarks.published_rows [TABLE ...]`, by default nemo_performance.csv and
mlperf_v5_0.csv. What a row does not state (recomputation, and the recipe of a plain FP8) is an axis of its grid: one
run is enough. A row whose candidates are all rejected by a rule or by memory is a defect, printed with the reasons.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

from benchmarks.reference_tables import read
from sweep.contract import Run
from sweep.errors import SweepError
from sweep.inputs.load import parse_grid
from sweep.inputs.yaml_lines import dump
from sweep.physics.catalogue import MODELS
from sweep.planning.build import build
from sweep.planning.runs import Plan
from sweep.plugins import TRAINER

TABLES = ("nemo_performance.csv", "mlperf_v5_0.csv")
OF_BRIDGE = ("DeepSeek", "Kimi", "GPT-OSS", "Llama-3", "Mixtral", "Nemotron-3", "Qwen3")
"""models with recipes in Megatron-Bridge; the others' rows are of NeMo's older containers, so of Megatron Core"""
DTYPES: Mapping[str, tuple[str, ...]] = {
    "": ("bf16",),
    "BF16": ("bf16",),
    "FP8": ("fp8_delayed", "fp8_tensorwise", "fp8_blockwise"),
    "FP8-CS": ("fp8_tensorwise",),
    "FP8-SC": ("fp8_blockwise",),
    "FP8-MX": ("mxfp8",),
    "MXFP8": ("mxfp8",),
    "NVFP4": ("nvfp4",),
}
"""the tables' words; CS is current scaling, MX micro-scaling, in docs/performance-summary.md of Megatron-Bridge"""


class InexpressibleError(Exception):
    """The row states what no grid can."""


def pre_training(row: Mapping[str, str]) -> bool:
    """Whether the row trains a whole model, rather than adapters or an instruction-tuned one."""
    kind = f"{row.get('section', '')} {row.get('task', '')} {row.get('benchmark', '')}".lower()
    return not any(word in kind for word in ("lora", "sft", "finetuning", "long input"))


def grid_of(row: Mapping[str, str]) -> dict[str, Any]:
    """The row as the keys of a grid. Raises InexpressibleError."""
    name = _model(row.get("model") or row["benchmark"])
    gpu = row.get("gpu") or row["system"].removeprefix("DGX-").lower()
    per_node = _number(row, "gpus_per_node", 4 if gpu.startswith("gb") else 8)
    gpus, chunks = _number(row, "num_gpus"), _number(row, "vp", _number(row, "vpp", 1))
    sequence, sequences = _number(row, "seq_len"), _number(row, "gbs", _number(row, "global_batch_size", 0))
    stated = row["precision"].removeprefix("assumed:").rstrip(":").upper()
    if gpus % per_node or not sequence or not sequences:
        raise InexpressibleError(f"{gpus} GPUs, {sequence} tokens per sequence, {sequences} sequences per step")
    if stated not in DTYPES:
        raise InexpressibleError(f"precision {stated!r}")
    looped = {"pp_schedule": "interleaved_1f1b", "virtual_stages": chunks} if chunks > 1 else {}
    bridge = name.startswith(OF_BRIDGE)
    return {
        "workload": "nemo" if bridge else "megatron",
        "params": {"recipe": _recipe(name), "keep": "model"} if bridge else {},
        "models": [name],
        "nodes": gpus // per_node,
        "sequence_length": sequence,
        "global_batch": sequences * sequence,
        **{axis: _number(row, axis, 1) for axis in ("tp", "pp", "cp", "ep")},
        **looped,
        "micro_batch_size": _number(row, "mbs", _number(row, "micro_batch_size", 1)),
        "zero": 3 if _number(row, "fsdp", 0) else 1,
        "dtype": list(DTYPES[stated]),
        "recompute": ["none", "selective", "full"],
        # expert_tensor_parallel_size and moe_router_force_load_balancing of scripts/performance of Megatron-Bridge
        **({"etp": 1, "routing": "balanced"} if MODELS[name].num_experts else {}),
        "tp_overlap": row.get("tp_comm_overlap") in ("1", "True"),
        "site": {"gpu": gpu, "gpus_per_node": per_node},
    }


def configured(plan: Plan) -> None:
    """Build the trainer's configuration of the plan's first run. Raises what the adapter raises."""
    run: Run = plan.runs[0].run()
    TRAINER.find(run.workload).configure(run, ".", 10).written()


def reasons(plan: Plan) -> list[str]:
    """Why every candidate is rejected, each reason once."""
    texts = (text for row in plan.table.column("reasons").to_pylist() for text in row)
    return list(dict.fromkeys(texts))


def _model(text: str) -> str:
    """The catalogue's name. A note in brackets is of the run, such as (w/o MTP)."""
    asked = _letters(re.sub(r"\(.*\)", "", text))
    found = {_letters(name): name for name in MODELS}.get(asked)
    if found is None:
        raise InexpressibleError(f"no public shape of {text} in the catalogue")
    return found


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _recipe(name: str) -> str:
    return re.sub(r"llama_", "llama", name.lower().replace("-", "_").replace(".", "")) + "_pretrain_config"


def _number(row: Mapping[str, str], column: str, default: int | None = None) -> int:
    text = row.get(column) or ""
    if not text and default is None:
        raise InexpressibleError(f"no {column}")
    return int(float(text)) if text else int(default or 0)


def main(tables: list[str]) -> int:
    """Print each row that is not a run, with the reasons, and the counts. 1 where one is rejected."""
    expressible, rejected, count = 0, 0, 0
    for table in tables:
        for line, row in enumerate(read(table), start=2):
            if not pre_training(row):
                continue
            count += 1
            try:
                grid = parse_grid(dump(grid_of(row)), f"{table} line {line}")
                assert grid.site is not None
                plan = build(grid, grid.site)
                if not plan.run_count:
                    rejected += 1
                    print(f"{table} line {line}: REJECTED {row.get('model', '')}: {' | '.join(reasons(plan))[:600]}")
                    continue
                configured(plan)
                expressible += 1
            except (InexpressibleError, SweepError, ValueError) as error:
                print(f"{table} line {line}: not expressible: {error}")
    print(f"expressible: {expressible} of {count} ({100 * expressible / max(count, 1):.0f} %), rejected: {rejected}")
    return 1 if rejected else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(TABLES)))
