"""nanotron: `run_train.py` with a YAML configuration of any Llama, on its own synthetic data (`dataset: null`).

Written against nanotron main of April 2026 (2411b022; the package 0.4 of 2024 has another layout of its configuration
and no `run_train.py`): dataclasses of `src/nanotron/config/`, the line of `train_step_logs` (`src/nanotron/trainer.py`)
with `human_format` (three digits). `params.root` is a checkout.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_workloads import decoder
from bench_workloads.trainers.adapter import Adapter, Launch, Reader, TrainerParameters, param
from bench_workloads.trainers.driver import trainer
from bench_workloads.trainers.driver.reading import NUMBER, PatternReader
from sweep.contract import Rule, Run

CONFIG = "nanotron.yaml"
_DTYPES = {"bf16": "bfloat16", "fp32": "float32"}
_ENGINES = {"1f1b": "1f1b", "gpipe": "afab"}
_NO_EXPERTS = "nanotron's experts exchange no tokens between ranks (src/nanotron/nn/moe.py): dense models only"


def configure(run: Run, directory: str, steps: int) -> Launch:
    """The configuration, and nanotron's own entry point with it."""
    import yaml

    # Not JSON: nanotron reads by PyYAML, to which its 1e-05 is a text
    text = yaml.safe_dump(configuration(run, directory, steps), sort_keys=False)
    script = str(Path(param(WORKLOAD, run, "root", str)) / "run_train.py")
    return Launch(
        program=(script, "--config-file", str(Path(directory) / CONFIG)),
        files={CONFIG: text},
        env={"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    )


def configuration(run: Run, directory: str, steps: int) -> dict[str, Any]:
    """The configuration of a run, as nanotron's `Config` reads it: what is left out has its default there."""
    layout, shape, tp_mode = run.layout, run.shape, param(WORKLOAD, run, "tp_mode", str)
    return {
        "general": {"project": "sweep", "run": "sweep", "seed": 42, "ignore_sanity_checks": True},
        "checkpoints": {"checkpoint_interval": 10 * steps + 1000, "checkpoints_path": f"{directory}/checkpoints"},
        "data_stages": [{"name": "synthetic", "start_training_step": 1, "data": {"dataset": None, "seed": 42}}],
        "logging": {"iteration_step_info_interval": 1, "log_level": "info", "log_level_replica": "info"},
        "model": {
            "dtype": _DTYPES[run.dtype],
            "init_method": {"std": 0.025},
            "model_config": {
                "is_llama_config": True,
                "hidden_size": shape["hidden_size"],
                "intermediate_size": shape["intermediate_size"],
                "num_hidden_layers": shape["num_layers"],
                "num_attention_heads": shape["num_heads"],
                "num_key_value_heads": shape["num_kv_heads"],
                "vocab_size": shape["vocab_size"],
                "tie_word_embeddings": shape["tied_embeddings"],
                "max_position_embeddings": run.sequence_length,
                "rms_norm_eps": 1e-05,
            },
        },
        "optimizer": {
            "zero_stage": layout.zero,
            "weight_decay": 0.01,
            "clip_grad": 1.0,
            "accumulate_grad_in_fp32": True,
            "optimizer_factory": {
                "name": "adamW",
                "adam_beta1": 0.9,
                "adam_beta2": 0.95,
                "adam_eps": 1e-08,
                "torch_adam_is_fused": True,
            },
            "learning_rate_scheduler": {"learning_rate": 0.0001, "lr_warmup_style": "constant"},
        },
        "parallelism": {
            "dp": layout.dp,
            "tp": layout.tp,
            "pp": layout.pp,
            "pp_engine": _ENGINES[layout.pp_schedule],
            "tp_mode": tp_mode,
            "tp_linear_async_communication": tp_mode == "REDUCE_SCATTER",
            "recompute_layer": layout.recompute == "full",
        },
        "tokens": {
            "batch_accumulation_per_replica": layout.grad_accum,
            "micro_batch_size": layout.micro_batch_size,
            "sequence_length": run.sequence_length,
            "train_steps": steps,
        },
    }


_OF_ENGINES = {"OneForwardOneBackward": "1f1b", "AllForwardAllBackward": "gpipe"}
_OF_DTYPES = {theirs: ours for ours, theirs in _DTYPES.items()}


def reader(_run: Run) -> Reader:
    """The line of an iteration, whose global batch has three digits only and is not compared; rank 0's memory.

    Its configuration, which `pformat` prints a field a line, and the line of sizes before the first iteration. What
    both hold is read from the latter, which reads the process groups; fields of the former by names that only one
    dataclass has.
    """
    size = r"\bmbs: (?:(?!mbs: ).)*?\b{}: (\d+) \|"
    field = r"[\s(]{}=(\d+)[,)]"
    return PatternReader(
        r"\biteration: (\d+) / \d+ \|",
        {
            "step_time_ms": rf"(?:elapsed_)?time_per_iteration(?:_ms)?: ({NUMBER})",
            "tokens_per_second": rf"\btokens_per_sec: ({NUMBER})",
            "tokens_per_second_per_gpu": rf"tokens_per_sec_per_gpu: ({NUMBER})",
            "loss": rf"lm_loss: ({NUMBER})",
            "grad_norm": rf"grad_norm: ({NUMBER})",
            "tflops_per_gpu": rf"model_tflops_per_gpu: ({NUMBER})",
            "allocated_mib": rf"Peak allocated:? ({NUMBER})MiB",
            "reserved_mib": rf"Peak reserved: ({NUMBER})MiB",
        },
        {
            "dp": (field.format("dp"), int),
            "pp": (field.format("pp"), int),
            "tp": (field.format("tp"), int),
            "ep": (field.format("expert_parallel_size"), int),
            "zero": (field.format("zero_stage"), int),
            "recompute": (r"[\s(]recompute_layer=(\w+)[,)]", lambda text: "full" if text == "True" else "none"),
            "pp_schedule": (
                r"[\s(]pp_engine=<(?:(?!pp_engine=).)*\.(\w+)PipelineEngine ",
                lambda text: _OF_ENGINES.get(text, text),
            ),
            "dtype": (r"[\s(]dtype=torch\.(\w+)[,)]", lambda text: _OF_DTYPES.get(text, text)),
            "micro_batch_size": (r"\bmbs: (\d+) \| grad_accum:", int),
            "grad_accum": (size.format("grad_accum"), int),
            "cp": (size.format("cp"), int),
            "sequence_length": (size.format("sequence_length"), int),
            "global_batch_sequences": (size.format("global_batch_size"), int),
        },
        begun=r"\bStart training\]?\s*$",
    )


@dataclass(frozen=True, kw_only=True)
class Settings(TrainerParameters):
    """nanotron's parameters."""

    root: str = "nanotron"
    """a checkout; a relative path is relative to where `sweep launch` was called"""
    tp_mode: str = "REDUCE_SCATTER"
    """REDUCE_SCATTER, or ALL_REDUCE: without sequence parallelism"""


WORKLOAD = trainer(
    Settings,
    axes=frozenset(
        {"dp", "tp", "pp", "cp", "zero", "micro_batch_size", "grad_accum", "recompute", "pp_schedule", "dtype"}
    ),
    lacks={
        **dict.fromkeys(("ep", "etp", "dispatcher", "ep_overlap", "routing"), _NO_EXPERTS),
        "virtual_stages": "both of nanotron's pipeline engines have one stage per rank",
        "pipeline_layout": "nanotron spreads its blocks by their computation (get_block_compute_costs)",
        **dict.fromkeys(("recompute_modules", "recompute_layers"), "recompute_layer is of whole layers, and of all"),
        "tp_overlap": "tp_linear_async_communication is on with params.tp_mode: REDUCE_SCATTER, and off without",
        "cuda_graphs": "nanotron records none in training",
    },
    choices={
        "zero": (0, 1),
        "recompute": ("none", "full"),
        "pp_schedule": tuple(_ENGINES),
        "dtype": ("bf16", "fp32"),
        "tp_mode": ("REDUCE_SCATTER", "ALL_REDUCE"),
    },
    rules=(
        *decoder.LLAMA,
        decoder.KV_HEADS_BY_TP,
        decoder.VOCABULARY_BY_TP,
        Rule(
            "context_parallel",
            lambda c: c["cp"] > 1,
            "nanotron initializes no weights with cp={cp} (`_load_model_checkpoint` raises NotImplementedError)",
        ),
        Rule(
            "sequence_by_tp",
            lambda c: (c["tp_mode"] == "REDUCE_SCATTER") & (c["sequence_length"] % c["tp"] != 0),
            "sequence parallelism cannot split {sequence_length} positions over tp={tp}",
        ),
    ),
)
ADAPTER = Adapter(
    workload=WORKLOAD,
    configure=configure,
    reader=reader,
    package="nanotron",
    hints={r"can't open file [^ ]*run_train\.py": "params.root must name a checkout of nanotron"},
)
