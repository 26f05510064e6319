"""torchtitan: a Llama of any size by a generated configuration module, on synthetic tokens.

Written against torchtitan 0.3.0, whose configuration is Python: `torchtitan.train --module M --config F` takes a
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
    shape, layout = run.shape, run.layout
    piped = layout.pp > 1
    values: dict[str, Scalar] = {
        "layers": shape["num_layers"],
        "hidden": shape["hidden_size"],
        "heads": shape["num_heads"],
        "kv_heads": shape["num_kv_heads"],
        "intermediate": shape["intermediate_size"],
        "vocabulary": shape["vocab_size"],
        "tied": shape["tied_embeddings"],
        "attention": param(WORKLOAD, run, "attention", str),
        "directory": directory,
        "steps": steps,
        "sequence": run.sequence_length,
        "local_batch": layout.micro_batch_size * (layout.grad_accum if piped else 1),
        "global_batch": run.global_batch_sequences,
        "micro_batch": layout.micro_batch_size,
        "dtype": _DTYPES[run.dtype],
        "replicate": layout.dp if layout.zero == 0 else 1,
        "shard": 1 if layout.zero == 0 else layout.dp,
        "reshard": {0: "never", 2: "never", 3: "always"}[layout.zero],
        "tp": layout.tp,
        "pp": layout.pp,
        "cp": layout.cp,
        "schedule": _SCHEDULES[layout.pp_schedule],
        "compiled": run.compile,
    }
    lines = "\n".join(f"    {name}={value!r}," for name, value in values.items())
    return _MODULE.replace("VALUES", lines).replace("RECOMPUTE", _RECOMPUTE[layout.recompute])


_MODULE = '''"""Written by sweep: one run of torchtitan, on random tokens."""

from dataclasses import dataclass
from types import SimpleNamespace

try:
    import torch
    from torchtitan.components.checkpoint import CheckpointManager
    from torchtitan.components.dataloader import ParallelAwareDataloader
    from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
    from torchtitan.components.metrics import MetricsProcessor
    from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
    from torchtitan.components.tokenizer import BaseTokenizer
    from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
    from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
    from torchtitan.distributed.pipeline_parallel import pipeline_llm
    from torchtitan.models import llama3
    from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm
    from torchtitan.protocols.model_spec import ModelSpec
    from torchtitan.trainer import Trainer
except ImportError as error:  # torchtitan answers one with "Cannot import module", without what is missing
    raise RuntimeError(f"torchtitan's environment lacks a package: {error}") from error

RUN = SimpleNamespace(
VALUES
)


class RandomTokens(torch.utils.data.IterableDataset):
    """Endless sequences of random tokens, different on every data-parallel rank."""

    def __init__(self, length, seed):
        self.length, self.seed = length, seed

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed)
        positions = torch.arange(self.length)
        while True:
            tokens = torch.randint(RUN.vocabulary, (self.length + 1,), generator=generator)
            yield {"input": tokens[:-1], "positions": positions}, tokens[1:]


class RandomTokensLoader(ParallelAwareDataloader):
    @dataclass(kw_only=True, slots=True)
    class Config(ParallelAwareDataloader.Config):
        pass

    def __init__(self, config, *, dp_world_size, dp_rank, seq_len, local_batch_size, **unused):
        dataset = RandomTokens(seq_len, dp_rank)
        super().__init__(dataset, dp_rank=dp_rank, dp_world_size=dp_world_size, batch_size=local_batch_size)


class NoTokenizer(BaseTokenizer):
    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config, *, tokenizer_path=None):
        super().__init__()

    def encode(self, *args, **kwargs):
        raise NotImplementedError

    def decode(self, *args, **kwargs):
        raise NotImplementedError

    def get_vocab_size(self):
        return RUN.vocabulary


def model():
    return llama3.Llama3Model.Config(
        dim=RUN.hidden,
        vocab_size=RUN.vocabulary,
        enable_weight_tying=RUN.tied,
        tok_embeddings=Embedding.Config(
            num_embeddings=RUN.vocabulary,
            embedding_dim=RUN.hidden,
            param_init=llama3._EMBEDDING_SKIP_INIT if RUN.tied else llama3._EMBEDDING_INIT,
        ),
        norm=RMSNorm.Config(normalized_shape=RUN.hidden, param_init=llama3._NORM_INIT),
        lm_head=Linear.Config(
            in_features=RUN.hidden, out_features=RUN.vocabulary, param_init=llama3._output_linear_init(RUN.hidden)
        ),
        layers=llama3._build_llama3_layers(
            n_layers=RUN.layers,
            dim=RUN.hidden,
            n_heads=RUN.heads,
            n_kv_heads=RUN.kv_heads,
            hidden_dim=RUN.intermediate,
            rope=ComplexRoPE.Config(
                dim=RUN.hidden // RUN.heads, max_seq_len=max(RUN.sequence, 8192), theta=500000, scaling="llama"
            ),
            attn_backend=RUN.attention,
        ),
    )


def configuration():
    spec = ModelSpec(
        name="llama3",
        flavor="sweep",
        model=model(),
        parallelize_fn=llama3.parallelize_llama,
        pipelining_fn=pipeline_llm,
        post_optimizer_build_fn=None,
        state_dict_adapter=None,
    )
    return Trainer.Config(
        model_spec=spec,
        dump_folder=RUN.directory,
        loss=ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config(global_vocab_size=RUN.vocabulary)),
        tokenizer=NoTokenizer.Config(),
        dataloader=RandomTokensLoader.Config(),
        optimizer=default_adamw(lr=1e-4),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=1),
        training=TrainingConfig(
            local_batch_size=RUN.local_batch,
            global_batch_size=RUN.global_batch,
            seq_len=RUN.sequence,
            steps=RUN.steps,
            disable_cuda_graphs=True,
            mixed_precision_param=RUN.dtype,
        ),
        parallelism=ParallelismConfig(
            data_parallel_replicate_degree=RUN.replicate,
            data_parallel_shard_degree=RUN.shard,
            fsdp_reshard_after_forward=RUN.reshard,
            tensor_parallel_degree=RUN.tp,
            pipeline_parallel_degree=RUN.pp,
            pipeline_parallel_schedule=RUN.schedule,
            pipeline_parallel_microbatch_size=RUN.micro_batch,
            context_parallel_degree=RUN.cp,
        ),
        activation_checkpoint=RECOMPUTE,
        compile=CompileConfig(enable=RUN.compiled),
        checkpoint=CheckpointManager.Config(enable=False),
        metrics=MetricsProcessor.Config(log_freq=1, disable_color_printing=True),
    )
'''


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
