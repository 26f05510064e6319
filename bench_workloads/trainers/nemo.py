"""NeMo's Megatron-Bridge: `scripts/training/run_recipe.py` with a recipe and overrides, on mock data.

Written against Megatron-Bridge main of August 2026 (067f987; package megatron-bridge 0.3 and later): options and
`KEY=VALUE` overrides of `scripts/training/run_recipe.py`, fields of `megatron/bridge/training/config.py`, the line of
`training_log` (`training/utils/train_utils.py`). `params.root` is a checkout. The recipe gives the model; its layers,
widths and heads are set to the grid's unless `keep` says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench_workloads import decoder
from bench_workloads.trainers import megatron_core
from bench_workloads.trainers.adapter import Adapter, CanSave, Launch, Reader, param, saving
from bench_workloads.trainers.driver import trainer
from bench_workloads.trainers.megatron import iterations
from sweep.contract import LAYOUT_FIELDS, Rule, Run

Value = Any
"""of an override: a scalar, a list, or a mapping"""


def configure(run: Run, _directory: str, steps: int) -> Launch:
    """The command line of run_recipe.py."""
    script = str(Path(param(WORKLOAD, run, "root", str)) / "scripts/training/run_recipe.py")
    recipe = param(WORKLOAD, run, "recipe", str)
    words = ("--recipe", recipe, "--mode", "pretrain", "--dataset", "mock")
    pairs = [word for name, value in overrides(run, steps).items() for word in _override(name, value)]
    # Megatron FSDP refuses 1; 8 is what its recipes set. A recipe's own value yields to one that is set before.
    connections = {"CUDA_DEVICE_MAX_CONNECTIONS": "1" if run.layout.zero < 2 else "8"}
    left = param(WORKLOAD, run, "keep", str) == "all"
    return Launch(program=(script, *words, *pairs), env={} if left else connections)


def overrides(run: Run, steps: int) -> dict[str, Value]:
    """Fields of Megatron-Bridge's `ConfigContainer`, but for those that the recipe keeps."""
    kept, (kind, directory, after) = param(WORKLOAD, run, "keep", str), saving(run)
    return {
        **(_sizes(run) if kept == "" else {}),
        **(_spread(run, kept) if kept != "all" else {}),
        "dataset.seq_length": run.sequence_length,
        "train.train_iters": steps,
        "train.global_batch_size": run.global_batch_sequences,
        "train.micro_batch_size": run.layout.micro_batch_size,
        "validation.eval_iters": 0,
        "scheduler.lr_warmup_iters": 0,
        "logger.log_interval": 1,
        "checkpoint.save": directory or None,
        **({"checkpoint.save_interval": after, "checkpoint.async_save": kind == "async"} if directory else {}),
    }


def _sizes(run: Run) -> dict[str, Value]:
    shape = run.shape
    experts, width = int(shape["num_experts"] or 0), int(shape["moe_intermediate_size"] or 0)
    dense = int(shape["dense_layers"] or 0)
    mixture: dict[str, Value] = {
        "model.num_moe_experts": experts,
        "model.moe_router_topk": shape["experts_per_token"],
        "model.moe_ffn_hidden_size": width,
        "model.moe_shared_expert_intermediate_size": int(shape["shared_experts"] or 0) * width or None,
        "model.moe_layer_freq": [0] * dense + [1] * (int(shape["num_layers"] or 0) - dense) if dense else 1,
    }
    return {
        "model.num_layers": shape["num_layers"],
        "model.hidden_size": shape["hidden_size"],
        "model.ffn_hidden_size": shape["intermediate_size"],
        "model.num_attention_heads": shape["num_heads"],
        "model.num_query_groups": shape["num_kv_heads"],
        "model.kv_channels": shape["head_dim"],
        "model.qk_layernorm": shape["qk_norm"],
        "model.share_embeddings_and_output_weights": shape["tied_embeddings"],
        "tokenizer.vocab_size": shape["vocab_size"],
        **(mixture if experts else {}),
    }


def _spread(run: Run, kept: str) -> dict[str, Value]:
    """Layout, precision, recomputation and overlap."""
    layout = run.layout
    whole = layout.cuda_graphs == megatron_core.FULL_ITERATION
    exclusive = layout.ep_overlap or layout.dispatcher == "allgather"
    replicas = layout.dp * layout.cp > 1
    gathered = layout.zero > 0 and replicas
    core: dict[str, Value] = {"cuda_graph_impl": "none", "cuda_graph_scope": None, **megatron_core.fields(run)}
    core |= {name: str(core[name]).split(",") for name in megatron_core.LISTS if core[name]}
    core["cuda_graph_scope"] = core["cuda_graph_scope"] or []
    left = {*megatron_core.PRECISION}
    left |= {"moe_router_dtype"} if core.get("moe_router_dtype") is None else set()
    left |= {"pipeline_model_parallel_layout"} if kept and not layout.pipeline_layout else set()
    return {
        **{f"model.{name}": value for name, value in core.items() if name not in left},
        **({"model.moe_shared_expert_overlap": False} if exclusive and run.shape["num_experts"] else {}),
        "model.virtual_pipeline_model_parallel_size": megatron_core.virtual_stages(run),
        "model.sequence_parallel": layout.tp > 1 and param(WORKLOAD, run, "sequence_parallel", bool),
        "mixed_precision": _precision(run),
        **({"rerun_state_machine.check_for_nan_in_loss": False} if whole else {}),
        **dict.fromkeys(("model.use_te_rng_tracker", "rng.te_rng_tracker"), layout.cuda_graphs != "none"),
        **({} if layout.zero else {"optimizer.use_precision_aware_optimizer": False}),
        "ddp.use_distributed_optimizer": layout.zero > 0,
        "optimizer.use_distributed_optimizer": layout.zero > 0,
        "ddp.overlap_grad_reduce": replicas,
        "ddp.overlap_param_gather": gathered,
        "optimizer.overlap_param_gather": gathered,
        **_fsdp(layout.zero),
        # Made again: a recipe's may have buffers of its own layout.
        "comm_overlap": {
            "_target_": "megatron.bridge.training.comm_overlap.CommOverlapConfig",
            "tp_comm_overlap": layout.tp_overlap,
            "overlap_moe_expert_parallel_comm": layout.ep_overlap,
            "overlap_grad_reduce": replicas,
            "overlap_param_gather": gathered,
        },
    }


def _fsdp(zero: int) -> dict[str, Value]:
    """Megatron FSDP: what its own recipes set (`nemotron_3_5_lightning_pretrain_8k_fsdp_config`, DeepSeek-V3's)."""
    if zero < 2:
        return {}
    return {
        "dist.use_megatron_fsdp": True,
        "ddp.use_megatron_fsdp": True,
        "ddp.data_parallel_sharding_strategy": "optim_grads_params" if zero == 3 else "optim_grads",
        "ddp.average_in_collective": False,
        "ddp.keep_fp8_transpose_cache": False,
        "model.init_model_with_meta_device": True,
        "checkpoint.load": None,
        "checkpoint.ckpt_format": "fsdp_dtensor",
    }


_IN_BF16 = {"first_last_layers_bf16": True, "num_layers_at_start_in_bf16": 1, "num_layers_at_end_in_bf16": 1}
_PRECISIONS: dict[str, Value] = {
    "bf16": "bf16_mixed",
    "fp16": "fp16_mixed",
    "fp8_delayed": {"fp8": "hybrid", "fp8_amax_history_len": 1024, "fp8_amax_compute_algo": "max"},
    "fp8_tensorwise": {"fp8": "hybrid", **_IN_BF16},
    "fp8_blockwise": {"fp8": "hybrid"},
    "mxfp8": {"fp8": "e4m3"},
    "nvfp4": "bf16_with_nvfp4_mixed",
}
"""dtype -> function of `training/mixed_precision.py`, or what the one of that recipe sets"""
_BF16 = {"_target_": "torch.bfloat16", "_call_": False}
_BF16_MIXED = {"bf16": True, "params_dtype": _BF16, "pipeline_dtype": _BF16, "grad_reduce_in_fp32": True}


def _precision(run: Run) -> Value:
    """Their name; of 8 bits the fields, since each name decides whether weights are gathered so."""
    own = _PRECISIONS[run.dtype]
    if isinstance(own, str):
        return own
    return {
        "_target_": "megatron.bridge.training.mixed_precision.MixedPrecisionConfig",
        **_BF16_MIXED,
        **own,
        "fp8_recipe": megatron_core.DTYPES[run.dtype]["fp8_recipe"],
        "fp8_param": run.layout.fp8_params,
        "fp8_param_gather": run.layout.fp8_params,
        "reuse_grad_buf_for_mxfp8_param_ag": run.layout.fp8_params and run.dtype == "mxfp8",
    }


def _override(name: str, value: Value) -> list[str]:
    """What sets a field. One that is an object in some recipes, a name or null in others, is set to null first: Hydra
    merges a mapping into an object, in which it finds no `_target_`.
    """
    # ++: some recipes' model keeps these fields in model.transformer, and hands on what is added to it.
    before = [f"{name}=null"] if name in ("mixed_precision", "comm_overlap") else []
    return [*before, f"{'++' * name.startswith('model.')}{name}={_text(value)}"]


def _text(value: Value) -> str:
    """The value as Hydra reads it."""
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{_text(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    plain = not isinstance(value, str) or re.fullmatch(r"[\w./-]*", value)
    return (str(value).lower() if isinstance(value, bool) else str(value)) if plain else f"'{value}'"


def reader(run: Run) -> Reader:
    """Iterations, and the summary of what differs from Core's defaults, after all that Bridge itself changes."""
    field, ends = r"^  (\w+): (.*)  \(Mcore default: ", r"^Other Configuration Values:"
    return megatron_core.StatedAxes(run, iterations(), r"^\[model\] Non-default values", field, ends)


@dataclass(frozen=True, kw_only=True)
class Settings(CanSave):
    """Megatron-Bridge's parameters."""

    root: str = "Megatron-Bridge"
    """a checkout; a relative path is relative to where `sweep launch` was called"""
    recipe: str = "llama32_1b_pretrain_config"
    """the recipe, one of `perf_recipes` too; layout, batch and sizes are the run's"""
    keep: str = ""
    """what the recipe keeps of its own: model (its sizes), or all: layout, precision and overlap too, which the grid
    must then state as the recipe has them"""
    sequence_parallel: bool = True
    """Megatron's sequence parallelism under `tp`"""


def _unless_kept(rule: Rule) -> Rule:
    """The rule where the grid's sizes count."""
    return replace(rule, broken=lambda c: (c["keep"] == "") & rule.broken(c))


WORKLOAD = trainer(
    Settings,
    axes=frozenset({*LAYOUT_FIELDS, "dtype"}),
    choices={
        **megatron_core.CHOICES,
        "zero": (0, 1, 2, 3),
        "dtype": tuple(_PRECISIONS),
        "keep": ("", "model", "all"),
    },
    rules=(
        *(_unless_kept(rule) for rule in decoder.PLAIN_LAYERS),
        decoder.VOCABULARY_BY_TP,
        decoder.SEQUENCE_BY_CP,
        *(_unless_kept(rule) if rule.name == "layers_by_stages" else rule for rule in megatron_core.RULES),
    ),
)
ADAPTER = Adapter(
    workload=WORKLOAD,
    configure=configure,
    reader=reader,
    package="megatron-bridge",
    convention="megatron-bridge",
    hints={
        r"can't open file [^ ]*run_recipe\.py": "params.root must name a checkout of Megatron-Bridge",
        r"Recipe '[^']*' not found": "perf_recipes are in checkouts (params.root) from v0.6.0 on, not in the package "
        "0.3.1",
    },
)
