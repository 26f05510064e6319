"""Calculon and llm-analysis on the rows of the published tables, for benchmarks.accuracy.

    pip install llm-analysis pandas psutil                     # in an environment of your own: no dependency of ours
    git clone https://github.com/calculon-ai/calculon DIR      # calculon on PyPI is another package
    python -m benchmarks.accuracy --calculon DIR

Each is used as its documentation says: calculon with its own system files and the closest settings that it knows (a
gated MLP counts as a plain one of the same number of weights, grouped queries as full ones), llm-analysis with the
efficiency that its own source names for Megatron-LM, 0.5. A program that is not installed is left out.
"""

from __future__ import annotations

import importlib
import json
import logging
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.reference_tables import Rows
from sweep.contract import FORMATS

Peer = Callable[[str, Mapping[str, Any]], float | None]
"""(kind of GPU, columns of one row) -> seconds, or None if it cannot express the row"""
MEGATRON_EFFICIENCY = 0.5
_CALCULON_SYSTEMS = {"a100": "a100_80g", "a100-40gb": "a100_80g", "h100": "h100_80g_nvl8", "h100-500w": "h100_80g_nvl8"}
_LLM_ANALYSIS_GPUS = {
    "v100": "v100-sxm-32gb",
    "a100": "a100-sxm-80gb",
    "a100-40gb": "a100-sxm-40gb",
    "h100": "h100-sxm-80gb",
    "h100-500w": "h100-sxm-80gb",
}


def calculon(checkout: Path) -> Peer:
    """The model of a checkout of calculon-ai/calculon."""
    sys.path.insert(0, str(checkout))
    llm = importlib.import_module("calculon.llm")
    system = importlib.import_module("calculon").System
    log = logging.getLogger("calculon")

    def seconds(gpu: str, row: Mapping[str, Any]) -> float | None:
        if gpu not in _CALCULON_SYSTEMS or row["cp"] > 1 or row["num_experts"] or row["zero"] == 3:
            return None
        file = checkout / "systems" / f"{_CALCULON_SYSTEMS[gpu]}.json"
        app = {
            "hidden": row["hidden_size"],
            "feedforward": row["intermediate_size"] * (3 if row["gated_mlp"] else 2) // 2,
            "seq_size": row["sequence_length"],
            "attn_heads": row["num_heads"],
            "attn_size": row["head_dim"],
            "num_blocks": row["num_layers"],
        }
        model = llm.Llm(llm.Llm.Application({name: int(value) for name, value in app.items()}), log)
        try:
            model.compile(loaded := system(json.loads(file.read_text())), llm.Llm.Execution.from_json(_execution(row)))
            model.run(loaded)
        except (AssertionError, llm.Llm.Error):
            return None
        return float(model.get_total_time())

    return seconds


def _execution(row: Mapping[str, Any]) -> dict[str, Any]:
    dp, tp, pp = (int(row[name]) for name in ("dp", "tp", "pp"))
    chunks = int(row["virtual_stages"]) if pp > 1 and row["pp_schedule"] != "1f1b" else 1
    split = bool(row["sequence_parallel"]) and tp > 1
    return {
        "num_procs": dp * tp * pp,
        "tensor_par": tp,
        "pipeline_par": pp,
        "data_par": dp,
        "tensor_par_net": 0 if tp <= row["gpus_per_node"] else 1,
        "pipeline_par_net": 1,
        "data_par_net": 1 if dp * tp > row["gpus_per_node"] else 0,
        "batch_size": int(dp * row["micro_batch_size"] * row["grad_accum"]),
        "microbatch_size": int(row["micro_batch_size"]),
        "datatype": "float8" if FORMATS.get(row["dtype"], row["dtype"]) == "fp8" else "float16",
        "fused_activation": True,
        "attention_type": "multihead",
        "activation_recompute": {"full": "full", "none": "none"}.get(str(row["recompute"]), "attn_only"),
        "pipeline_interleaving": chunks,
        "optimizer_sharding": bool(row["zero"] and dp > 1),
        "tensor_par_comm_type": "rs_ag" if split else "ar",
        "tensor_par_overlap": "none",
        "seq_par_ag_redo": split and row["recompute"] != "full",
        "data_par_overlap": dp > 1 and bool(row.get("dp_overlap", 1.0)),
        "weight_offload": False,
        "activations_offload": False,
        "optimizer_offload": False,
        "training": True,
    }


def llm_analysis() -> Peer:
    """The installed llm-analysis."""
    analysis = importlib.import_module("llm_analysis.analysis")
    config = importlib.import_module("llm_analysis.config")
    logging.disable(logging.CRITICAL)

    def seconds(gpu: str, row: Mapping[str, Any]) -> float | None:
        if gpu not in _LLM_ANALYSIS_GPUS or row["num_experts"] or row["cp"] > 1 or row["dtype"] in ("fp8", *FORMATS):
            return None
        ratio = 1.5 if row["gated_mlp"] else 1.0
        model = config.ModelConfig(
            name="row",
            num_layers=int(row["num_layers"]),
            n_head=int(row["num_heads"]),
            hidden_dim=int(row["hidden_size"]),
            vocab_size=int(row["vocab_size"]),
            ffn_embed_dim=int(row["intermediate_size"] * ratio),
            expansion_ratio=row["intermediate_size"] * ratio / row["hidden_size"],
            max_seq_len=int(row["sequence_length"]),
        )
        ways = {f"{name}_size": int(row[name]) for name in ("tp", "pp", "dp")}
        parallel = config.ParallelismConfig(**ways, sp_size=ways["tp_size"] if row["sequence_parallel"] else 1)
        kinds = config.get_gpu_config_by_name(_LLM_ANALYSIS_GPUS[gpu]), config.get_dtype_config_by_name("w16a16e16")
        made = analysis.LLMAnalysis(model, *kinds, parallel, flops_efficiency=MEGATRON_EFFICIENCY)
        recompute = {"none": "NONE", "full": "FULL"}.get(str(row["recompute"]), "SELECTIVE")
        try:
            found = made.training(
                batch_size_per_gpu=int(row["micro_batch_size"]),
                gradient_accumulation_steps=int(row["grad_accum"]),
                seq_len=int(row["sequence_length"]),
                total_num_tokens=10**9,
                activation_recomputation=analysis.ActivationRecomputation[recompute],
                ds_zero=analysis.DSZeRO(int(row["zero"])),
                flash_attn=bool(row["flash_attention"]),
            )
        except (AssertionError, ValueError, ZeroDivisionError):
            return None
        return float(found["latency_per_iter"])

    return seconds


def of_rows(rows: Rows, peer: Peer) -> Any:
    """A peer's seconds of every row; nan where it cannot express one."""
    profile = {"sequence_parallel": rows.profile.sequence_parallel, "flash_attention": rows.profile.flash_attention}
    found = []
    for place in range(len(rows.seconds)):
        row = {name: np.broadcast_to(value, rows.seconds.shape)[place] for name, value in rows.columns.items()}
        found.append(
            peer(rows.gpu.name, {name: getattr(v, "item", lambda v=v: v)() for name, v in row.items()} | profile)
        )
    return np.array([np.nan if one is None else one for one in found])


def installed(checkout: Path | None) -> dict[str, Peer]:
    found: dict[str, Peer] = {}
    if checkout is not None:
        found["calculon"] = calculon(checkout)
    try:
        found["llm-analysis"] = llm_analysis()
    except ModuleNotFoundError as error:
        print(f"llm-analysis is left out: {error}", file=sys.stderr)
    return found
