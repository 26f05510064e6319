"""NeMo's Megatron-Bridge: `scripts/training/run_recipe.py` with a recipe and overrides, on mock data.

Written against Megatron-Bridge main of August 2026 (067f987; package megatron-bridge 0.3 and later): options and
`KEY=VALUE` overrides of `scripts/training/run_recipe.py`, fields of `megatron/bridge/training/config.py`, the line of
`training_log` (`training/utils/train_utils.py`). `params.root` is a checkout. The recipe gives the model; its layers,
widths and heads are set to the grid's. What a recipe interleaves and overlaps for its own layout is reset.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench_workloads.trainers import decoder
from bench_workloads.trainers.adapter import SHARED_CHOICES, Adapter, Hint, Launch, TrainerParameters, param
from bench_workloads.trainers.driver.driver import drive
from bench_workloads.trainers.megatron import iterations
from sweep.contract import Progress, RankRun, Rule, Run, Scalar, Workload


def main(run: RankRun, progress: Progress) -> None:
    """One rank of Megatron-Bridge."""
    drive(ADAPTER, run, progress)


def configure(run: Run, _directory: str, steps: int) -> Launch:
    """The command line of run_recipe.py."""
    script = str(Path(param(WORKLOAD, run, "root", str)) / "scripts/training/run_recipe.py")
    recipe = param(WORKLOAD, run, "recipe", str)
    words = ("--recipe", recipe, "--mode", "pretrain", "--dataset", "mock")
    pairs = tuple(f"{name}={_text(value)}" for name, value in overrides(run, steps).items())
    return Launch(program=(script, *words, *pairs), env={"CUDA_DEVICE_MAX_CONNECTIONS": "1"})


def overrides(run: Run, steps: int) -> dict[str, Scalar]:
    """Fields of Megatron-Bridge's `ConfigContainer`."""
    shape, layout = run.shape, run.layout
    full = layout.recompute == "full"
    replicas = layout.dp * layout.cp > 1
    values: dict[str, Scalar] = {
        "model.num_layers": shape["num_layers"],
        "model.hidden_size": shape["hidden_size"],
        "model.ffn_hidden_size": shape["intermediate_size"],
        "model.num_attention_heads": shape["num_heads"],
        "model.num_query_groups": shape["num_kv_heads"],
        "model.kv_channels": shape["head_dim"],
        "model.share_embeddings_and_output_weights": shape["tied_embeddings"],
        "model.tensor_model_parallel_size": layout.tp,
        "model.pipeline_model_parallel_size": layout.pp,
        "model.virtual_pipeline_model_parallel_size": None,
        "model.context_parallel_size": layout.cp,
        "model.sequence_parallel": layout.tp > 1 and param(WORKLOAD, run, "sequence_parallel", bool),
        "model.recompute_granularity": None if layout.recompute == "none" else layout.recompute,
        "model.recompute_method": "uniform" if full else None,
        "model.recompute_num_layers": 1 if full else None,
        "tokenizer.vocab_size": shape["vocab_size"],
        "dataset.seq_length": run.sequence_length,
        "train.train_iters": steps,
        "train.global_batch_size": run.global_batch_sequences,
        "train.micro_batch_size": layout.micro_batch_size,
        "validation.eval_iters": 0,
        "scheduler.lr_warmup_iters": 0,
        "ddp.use_distributed_optimizer": layout.zero > 0,
        "optimizer.use_distributed_optimizer": layout.zero > 0,
        "ddp.overlap_grad_reduce": replicas,
        "ddp.overlap_param_gather": layout.zero > 0 and replicas,
        "optimizer.overlap_param_gather": layout.zero > 0 and replicas,
        # A recipe's is for its own layout, buffers of tensor parallelism included. Recipes without it have null here,
        # below which Hydra knows no keys.
        "comm_overlap": None,
        "logger.log_interval": 1,
        "checkpoint.save": None,
    }
    return values


def _text(value: Scalar) -> str:
    """The value as OmegaConf writes it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, kw_only=True)
class Settings(TrainerParameters):
    """Megatron-Bridge's parameters."""

    root: str = "Megatron-Bridge"
    """a checkout; a relative path is relative to where `sweep launch` was called"""
    recipe: str = "llama32_1b_pretrain_config"
    """the recipe; layout, batch and sizes are the run's"""
    sequence_parallel: bool = True
    """Megatron's sequence parallelism under `tp`"""


WORKLOAD = Workload(
    name="nemo",
    same_start=False,
    takes_listener=True,
    main="bench_workloads.trainers.nemo:main",
    axes=frozenset({"dp", "tp", "pp", "cp", "zero", "micro_batch_size", "grad_accum", "recompute", "dtype"}),
    preload=("psutil", "bench_workloads.trainers.nemo"),
    params=Settings.defaults(),
    choices={
        **SHARED_CHOICES,
        "zero": (0, 1),
        "recompute": ("none", "selective", "full"),
        "dtype": ("bf16",),
    },
    rules=(
        *decoder.LLAMA[:-1],
        decoder.VOCABULARY_BY_TP,
        decoder.SEQUENCE_BY_CP,
        Rule(
            "layers_by_stages",
            lambda c: c["num_layers"] % c["pp"] != 0,
            "{num_layers} layers cannot be split evenly over pp={pp}",
        ),
    ),
)
ADAPTER = Adapter(
    workload=WORKLOAD,
    versions="Megatron-Bridge main of 2026-08 (067f987)",
    configure=configure,
    reader=lambda _: iterations(),
    package="megatron-bridge",
    convention="megatron-bridge",
    hints=(
        Hint(
            pattern=r"can't open file [^ ]*run_recipe\.py", text="params.root must name a checkout of Megatron-Bridge"
        ),
    ),
)
