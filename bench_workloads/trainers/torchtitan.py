"""torchtitan: any Llama or Qwen3, experts included, or a model of its own, by a generated configuration module.

On synthetic tokens. Written against torchtitan 0.3.0, whose configuration is Python: `torchtitan.train --module M --config F` takes a
`Trainer.Config` from function F of module M (`config/manager.py`). Lines of `components/metrics.py`, `trainer.py`,
`distributed/parallel_dims.py`, `distributed/pipeline_parallel.py` and `distributed/activation_checkpoint.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from bench_workloads.trainers import decoder
from bench_workloads.trainers.adapter import (
    SHARED_CHOICES,
    Adapter,
    Hint,
    Launch,
    Reader,
    TrainerParameters,
    param,
)
from bench_workloads.trainers.driver.driver import drive
from bench_workloads.trainers.driver.reading import NUMBER, PatternReader
from bench_workloads.trainers.torchtitan_module import TEMPLATE
from sweep.contract import Progress, RankRun, Rule, Run, Scalar, Workload
from sweep.physics.profiles import PROFILES
from sweep.physics.schedules import LOOPED, V_SCHEDULES

MODULE = "sweep_torchtitan"
_SCHEDULES = {
    "1f1b": "1F1B",
    "gpipe": "GPipe",
    "interleaved_1f1b": "Interleaved1F1B",
    "looped_bfs": "LoopedBFS",
    "interleaved_zero_bubble": "InterleavedZeroBubble",
    "zbv_zero_bubble": "ZBVZeroBubble",
}
_OF_SCHEDULES = {theirs: ours for ours, theirs in _SCHEDULES.items()}
_FURTHER_STAGES = PROFILES["torchtitan"].stages_beyond_layers
_DTYPES = {"bf16": "bfloat16", "fp32": "float32"}
_QUANTIZED = {"fp8_rowwise": "float8", "mxfp8": "mxfp8", "nvfp4": "nvfp4"}
_RECOMPUTE = {"none": "None", "selective": "SelectiveAC.Config()", "full": "FullAC.Config()"}


def main(run: RankRun, progress: Progress) -> None:
    """One rank of torchtitan."""
    drive(ADAPTER, run, progress)


def configure(run: Run, directory: str, steps: int) -> Launch:
    """The configuration module, and torchtitan's own entry point with it."""
    return Launch(
        program=("-m", "torchtitan.train", "--module", MODULE, "--config", "configuration"),
        files={f"{MODULE}.py": module(run, directory, steps)},
        env={"PYTHONPATH": directory},
    )


def module(run: Run, directory: str, steps: int) -> str:
    """The text of the configuration module."""
    values = {**_model(run), **_batch(run, steps), **_layout(run), **_precision(run), "directory": directory}
    lines = "\n".join(f"    {name}={value!r}," for name, value in values.items())
    return TEMPLATE.replace("VALUES", lines).replace("RECOMPUTE", _RECOMPUTE[run.layout.recompute])


def _model(run: Run) -> dict[str, Scalar]:
    shape = run.shape
    family, _, flavor = param(WORKLOAD, run, "flavor", str).partition("/")
    return {
        "family": family or ("qwen3" if shape["num_experts"] or shape["qk_norm"] else "llama3"),
        "flavor": flavor,
        "layers": shape["num_layers"],
        "hidden": shape["hidden_size"],
        "heads": shape["num_heads"],
        "kv_heads": shape["num_kv_heads"],
        "head": shape["head_dim"],
        "intermediate": shape["intermediate_size"],
        "vocabulary": shape["vocab_size"],
        "tied": shape["tied_embeddings"],
        "qk_norm": shape["qk_norm"],
        "experts": shape["num_experts"],
        "experts_per_token": shape["experts_per_token"],
        "expert_intermediate": shape["moe_intermediate_size"],
        "shared_experts": shape["shared_experts"],
        "dense_layers": shape["dense_layers"],
        "attention": param(WORKLOAD, run, "attention", str),
    }


def _batch(run: Run, steps: int) -> dict[str, Scalar]:
    layout = run.layout
    return {
        "steps": steps,
        "sequence": run.sequence_length,
        "local_batch": layout.micro_batch_size * (layout.grad_accum if layout.pp > 1 else 1),
        "global_batch": run.global_batch_sequences,
        "micro_batch": layout.micro_batch_size,
    }


def _layout(run: Run) -> dict[str, Scalar]:
    layout = run.layout
    return {
        "replicate": layout.dp if layout.zero == 0 else 1,
        "shard": 1 if layout.zero == 0 else layout.dp,
        "reshard": {0: "never", 2: "never", 3: "always"}[layout.zero],
        "tp": layout.tp,
        "pp": layout.pp,
        "cp": layout.cp,
        "ep": layout.ep,
        "schedule": _SCHEDULES[layout.pp_schedule],
        "dispatcher": "standard",
        "capacity_factor": None,
        "compiled": run.compile,
        "spmd_backend": param(WORKLOAD, run, "spmd_backend", str),
    }


def _precision(run: Run) -> dict[str, Scalar]:
    return {"dtype": _DTYPES.get(run.dtype, "bfloat16"), "quantized": _QUANTIZED.get(run.dtype, "")}


def reader(run: Run) -> Reader:
    """Steps, and what torchtitan prints about mesh, batch, pipeline and recomputation."""
    mesh = r"device mesh with parallelism: (?:(?!parallelism: ).)*\b"
    trainer = r"Trainer is initialized with (?:(?!initialized with ).)*\b"
    piped = run.layout.pp > 1
    batch: dict[str, tuple[str, Callable[[str], Scalar]]] = {
        "pp_schedule": (r"Using pipeline schedule (\w+) with", lambda text: _OF_SCHEDULES.get(text, text)),
        "grad_accum": (r"Using pipeline schedule \w+ with (\d+) microbatches", int),
    }
    if not piped:
        batch = {
            "micro_batch_size": (trainer + r"local batch size (\d+)", int),
            "grad_accum": (trainer + r"gradient accumulation steps (\d+)", int),
        }
    return PatternReader(
        r"(?<!validate )\bstep:\s*(\d+)\s+loss:",
        {
            "loss": rf"\bloss:\s*({NUMBER})",
            "grad_norm": rf"grad_norm:\s*({NUMBER})",
            "reserved_gib": rf"memory:\s*({NUMBER})GiB",
            "tokens_per_second_per_gpu": rf"\btps:\s*({NUMBER})",
            "tflops_per_gpu": rf"tflops:\s*({NUMBER})",
            "mfu_percent": rf"mfu:\s*({NUMBER})%",
        },
        {
            **{name: (rf"{mesh}{name}=(\d+)", int) for name in ("pp", "cp", "tp", "ep")},
            "dp": (mesh + r"dp_replicate=(\d+, dp_shard=\d+)", lambda text: prod(map(int, text.split(", dp_shard=")))),
            "zero": (mesh + r"dp_replicate=(?!1,)(\d+), dp_shard=1,", lambda _: 0),
            "global_batch_sequences": (trainer + r"global batch size (\d+)", int),
            "sequence_length": (trainer + r"sequence length (\d+)", int),
            "recompute": (r"Applied (Full|Selective)AC activation checkpointing", str.lower),
            **batch,
        },
        begun=r"Training starts at step",
    )


def _stages(c: Mapping[str, Any]) -> Any:
    """Stages over all ranks, by columns: two on each rank where the schedule has several."""
    several = sum(c["pp_schedule"] == name for name in (*LOOPED, *V_SCHEDULES))
    return c["pp"] * (1 + (c["pp"] > 1) * several)


@dataclass(frozen=True, kw_only=True)
class Settings(TrainerParameters):
    """torchtitan's parameters."""

    attention: str = "flex"
    """attention kernel: flex, flex_flash or varlen"""
    flavor: str = ""
    """a model of torchtitan's own registry, FAMILY/NAME such as deepseek_v3/671B; empty: the grid's shape"""
    spmd_backend: str = "spmd_types"
    """spmd_types (needs a torch after 2.13), partial_dtensor or full_dtensor"""


WORKLOAD = Workload(
    name="torchtitan",
    same_start=False,
    takes_listener=True,
    main="bench_workloads.trainers.torchtitan:main",
    axes=frozenset(
        {
            "dp",
            "tp",
            "pp",
            "cp",
            "ep",
            "zero",
            "micro_batch_size",
            "grad_accum",
            "recompute",
            "pp_schedule",
            "dtype",
            "compile",
        }
    ),
    preload=("psutil", "bench_workloads.trainers.torchtitan"),
    params=Settings.defaults(),
    choices={
        **SHARED_CHOICES,
        "zero": (0, 2, 3),
        "recompute": ("none", "selective", "full"),
        "pp_schedule": tuple(_SCHEDULES),
        "dtype": ("bf16", "fp32"),
        "compile": (False, True),
        "attention": ("flex", "flex_flash", "varlen"),
    },
    rules=(
        *decoder.LLAMA,
        decoder.KV_HEADS_BY_TP,
        decoder.VOCABULARY_BY_TP,
        Rule(
            "micro_batches_by_pp",
            lambda c: (c["pp"] > 1) & (c["grad_accum"] < c["pp"]),
            "grad_accum={grad_accum} micro-batches for pp={pp} stages",
        ),
        Rule(
            "layers_by_stages",
            lambda c: _stages(c) > c["num_layers"] + _FURTHER_STAGES,
            "{num_layers} layers, embedding and output projection are fewer than the stages of pp={pp} ({pp_schedule})",
        ),
        Rule(
            "sequence_by_tp_and_cp",
            lambda c: c["sequence_length"] % (c["tp"] * (1 + (c["cp"] > 1) * (2 * c["cp"] - 1))) != 0,
            "a sequence of {sequence_length} cannot be split over tp={tp} and twice cp={cp}",
        ),
        Rule(
            "tied_in_pipeline",
            lambda c: (c["tied_embeddings"] == True) & (c["pp"] > 1),  # noqa: E712
            "tied embeddings cannot be cut by pp={pp} stages",
        ),
    ),
)
ADAPTER = Adapter(
    workload=WORKLOAD,
    versions="torchtitan 0.3.0",
    configure=configure,
    reader=reader,
    package="torchtitan",
    convention="torchtitan",
    hints=(
        Hint(
            pattern="No module named 'triton'",
            text="torchtitan imports triton, which torch's CPU wheels lack: install it",
        ),
        Hint(
            pattern="Torch not compiled with CUDA enabled|Found no NVIDIA driver",
            text="torchtitan 0.3 needs a GPU: its device is CUDA where torch finds none",
        ),
    ),
)
