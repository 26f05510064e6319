"""Megatron-LM: `pretrain_gpt.py` by flags, with mock data and the null tokenizer.

Written against Megatron-LM main of August 2026 (d98e8a6, core 0.16 and later): flags of `training/arguments.py`
and `training/config/`, lines of `training_log` (`training/training.py`), of `report_memory` and of `_print_args`.
`params.root` is a checkout: the package megatron-core has no training script.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bench_workloads import decoder
from bench_workloads.trainers import megatron_core
from bench_workloads.trainers.adapter import Adapter, CanSave, Launch, ParsedLine, Reader, param, saving
from bench_workloads.trainers.driver import trainer
from bench_workloads.trainers.driver.reading import NUMBER, PatternReader
from bench_workloads.trainers.megatron_core import RULES, quantized
from sweep.contract import LAYOUT_FIELDS, Rule, Run, Scalar

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
    "checkpoint": (r"^\s+async_save(?: \.+|:) (True|False)", lambda text: "async" if text == "True" else "sync"),
}
"""Megatron-LM's first lines, its table of arguments (`_print_args`), Megatron-Bridge's YAML of the final configuration
(`run_config`), what both print about process groups, and the iterations' own batch"""


def configure(run: Run, _directory: str, steps: int) -> Launch:
    """The command line of pretrain_gpt.py."""
    script = str(Path(param(WORKLOAD, run, "root", str)) / "pretrain_gpt.py")
    words = _flags(_model(run) | _window(run) | _experts(run) | _layout(run) | _rest(run, steps))
    return Launch(program=(script, *words), env={"CUDA_DEVICE_MAX_CONNECTIONS": "1"})


_FLAGS = {"fp8": "fp8-format", "fp4": "fp4-format"}
"""of Core's fields that have another name here"""
_LISTS = tuple(name.replace("_", "-") for name in megatron_core.LISTS)


def _flags(values: dict[str, Scalar]) -> list[str]:
    """A flag per value: bare where it is True, left out where it is False or None."""
    words: list[str] = []
    for name, value in values.items():
        if value is True:
            words.append(f"--{name}")
        elif value is not False and value is not None:
            words += [f"--{name}", *(str(value).split(",") if name in _LISTS else [str(value)])]
    return words


def _model(run: Run) -> dict[str, Scalar]:
    shape = run.shape
    grouped = shape["num_kv_heads"] != shape["num_heads"]
    learned, latent = bool(shape["learned_positions"]), bool(shape.get("kv_rank"))
    return {
        "num-layers": shape["num_layers"],
        "hidden-size": shape["hidden_size"],
        "num-attention-heads": shape["num_heads"],
        "kv-channels": shape["head_dim"],
        "group-query-attention": grouped,
        "num-query-groups": shape["num_kv_heads"] if grouped else None,
        "ffn-hidden-size": shape["intermediate_size"],
        "vocab-size": shape["vocab_size"],
        "make-vocab-size-divisible-by": 1,
        "max-position-embeddings": shape["learned_positions"] or run.sequence_length,
        "position-embedding-type": "learned_absolute" if learned else "rope",
        "swiglu": shape["gated_mlp"],
        "normalization": "RMSNorm" if shape["norm"] == "rmsnorm" else "LayerNorm",
        "qk-layernorm": shape["qk_norm"] or latent,  # of latent attention, the norms of the latents
        "disable-bias-linear": not shape["mlp_bias"],
        "add-qkv-bias": bool(shape["qkv_bias"]) and not shape["mlp_bias"],
        "untie-embeddings-and-output-weights": not shape["tied_embeddings"],
        "attention-dropout": 0.0,
        "hidden-dropout": 0.0,
        "mtp-num-layers": shape.get("mtp_layers") or None,
        "multi-latent-attention": latent,
        "q-lora-rank": shape.get("q_rank") or None,
        "kv-lora-rank": shape.get("kv_rank") or None,
        "qk-head-dim": shape["head_dim"] if latent else None,
        "v-head-dim": shape["head_dim"] if latent else None,
        "qk-pos-emb-head-dim": shape.get("rope_head_dim", 0) if latent else None,
    }


def _window(run: Run) -> dict[str, Scalar]:
    """Of layers with a sliding window; those without are spread evenly, as in GPT-OSS each second one."""
    window, windowed, layers = (int(run.shape.get(name) or 0) for name in ("window", "window_layers", "num_layers"))
    if not 0 < window < run.sequence_length:
        return {}
    whole = layers - windowed
    pattern = ",".join("0" if (i + 1) * whole // layers > i * whole // layers else "1" for i in range(layers))
    # Positions before and after a token's own.
    return {"window-size": f"{window - 1},0", "window-attn-skip-freq": f"[{pattern}]"}


def _experts(run: Run) -> dict[str, Scalar]:
    shape = run.shape
    experts = int(shape["num_experts"] or 0)
    if not experts:
        return {}
    shared = int(shape["shared_experts"] or 0) * int(shape["moe_intermediate_size"] or 0)
    dense = int(shape["dense_layers"] or 0)
    layers = int(shape["num_layers"] or 0)
    return {
        "num-experts": experts,
        "moe-router-topk": shape["experts_per_token"],
        "moe-ffn-hidden-size": shape["moe_intermediate_size"],
        "moe-shared-expert-intermediate-size": shared or None,
        "moe-layer-freq": f"([0]*{dense}+[1]*{layers - dense})" if dense else None,
        "moe-grouped-gemm": True,
    }


def _layout(run: Run) -> dict[str, Scalar]:
    layout = run.layout
    found = {_FLAGS.get(name, name.replace("_", "-")): value for name, value in megatron_core.fields(run).items()}
    return {
        **found,
        "num-virtual-stages-per-pipeline-rank": None if layout.pipeline_layout else megatron_core.virtual_stages(run),
        "sequence-parallel": layout.tp > 1 and param(WORKLOAD, run, "sequence_parallel", bool),
        "fp8-param-gather": layout.fp8_params and run.dtype != "nvfp4",
        "fp4-param-gather": layout.fp8_params and run.dtype == "nvfp4",
        "reuse-grad-buf-for-mxfp8-param-ag": layout.fp8_params and run.dtype == "mxfp8",
        "no-check-for-nan-in-loss-and-grad": layout.cuda_graphs == megatron_core.FULL_ITERATION,
        "tp-comm-overlap": layout.tp_overlap,
        "overlap-moe-expert-parallel-comm": layout.ep_overlap,
        "use-distributed-optimizer": layout.zero > 0,
        "overlap-grad-reduce": layout.dp * layout.cp > 1,
        "overlap-param-gather": layout.zero > 0 and layout.dp * layout.cp > 1,
    }


def _rest(run: Run, steps: int) -> dict[str, Scalar]:
    """Batch, data, precision, one checkpoint, and what Megatron's own layers lack."""
    implementation = param(WORKLOAD, run, "transformer_impl", str)
    kind, directory, after = saving(run)
    return {
        "seq-length": run.sequence_length,
        "micro-batch-size": run.layout.micro_batch_size,
        "global-batch-size": run.global_batch_sequences,
        "train-iters": steps,
        "lr": 1e-4,
        "lr-decay-iters": steps,
        "clip-grad": 1.0,
        "mock-data": True,
        "tokenizer-type": "NullTokenizer",
        "split": "99,1,0",
        "eval-iters": 0,
        "eval-interval": 1_000_000,
        "log-interval": 1,
        "log-throughput": True,
        "transformer-impl": implementation,
        "bf16": run.dtype not in ("fp16", "fp32"),
        "fp16": run.dtype == "fp16",
        # From its default of 2^32 the first dozen iterations overflow, and skip their step.
        "initial-loss-scale": 65536 if run.dtype == "fp16" else None,
        "distributed-timeout-minutes": 10,
        "async-save": kind == "async",
        "use-persistent-ckpt-worker": kind == "async",  # without it Megatron-LM switches --async-save off
        "save": directory or None,
        "save-interval": after if directory else None,
        # Of Megatron's defaults, these kernels are Transformer Engine's and Apex's, and its own layers end without them
        # (`TransformerConfig`, `ColumnParallelLinear`, `WrappedTorchNorm`).
        "no-rope-fusion": implementation == "local",
        "no-gradient-accumulation-fusion": implementation == "local",
        "no-persist-layer-norm": implementation == "local",
    }


class _Iterations:
    """Those of ``iterations``, without the values that the line after the first one averages over both.

    Megatron-LM adds a line after its first iteration without setting its timer back: the next line's length and rate
    are means with the slow first. The time between the two lines is the length.
    """

    def __init__(self) -> None:
        self._lines = iterations()
        self._last = 0

    def read(self, line: str) -> list[ParsedLine]:
        """What was parsed from the line."""
        return [self._without_mean(parsed) for parsed in self._lines.read(line)]

    def _without_mean(self, parsed: ParsedLine) -> ParsedLine:
        if parsed.iteration is None:
            return parsed
        before, self._last = self._last, parsed.iteration
        if before != 1 or parsed.iteration == 1:
            return parsed
        values = {name: value for name, value in parsed.values.items() if name not in ("step_time_s", "tflops_per_gpu")}
        return replace(parsed, values=values)


def reader(run: Run) -> Reader:
    """Iterations, and the table of arguments."""
    field, ends = r"^\s+(\w+) \.+ (.*)", r"^-+ end of arguments -"
    return megatron_core.StatedAxes(run, _Iterations(), r"^-+ arguments -+$", field, ends)


@dataclass(frozen=True, kw_only=True)
class Settings(CanSave):
    """Megatron-LM's parameters."""

    root: str = "Megatron-LM"
    """a checkout; a relative path is relative to where `sweep launch` was called"""
    transformer_impl: str = "transformer_engine"
    """transformer_engine, or local: Megatron's own layers, without Transformer Engine and Apex"""
    sequence_parallel: bool = True
    """false needs more memory, and no experts under `tp`"""


WORKLOAD = trainer(
    Settings,
    axes=frozenset({*LAYOUT_FIELDS, "dtype"}),
    choices={
        **megatron_core.CHOICES,
        "zero": (0, 1),
        "dtype": tuple(megatron_core.DTYPES),
        "transformer_impl": ("transformer_engine", "local"),
    },
    rules=(
        decoder.VOCABULARY_BY_TP,
        decoder.SEQUENCE_BY_CP,
        Rule(
            "window",
            lambda c: (c["window"] > 0) & (c["window"] < c["sequence_length"]) & (c["cp"] > 1),
            "Megatron's exchange of keys and values (cp={cp}) has no sliding window ({window})",
        ),
        *RULES,
        Rule(
            "learned_positions",
            lambda c: (c["learned_positions"] > 0) & (c["learned_positions"] < c["sequence_length"]),
            "the model has learned positions for {learned_positions} of {sequence_length} tokens",
        ),
        Rule(
            "sequence_by_tp",
            lambda c: (
                (c["sequence_parallel"] == True)  # noqa: E712
                & (c["sequence_length"] % (c["tp"] * c["cp"]) != 0)
            ),
            "sequence parallelism cannot split {sequence_length} positions over tp={tp} and cp={cp}",
        ),
        Rule(
            "experts_without_sequence_parallelism",
            lambda c: (c["num_experts"] > 0) & (c["tp"] > 1) & (c["sequence_parallel"] == False),  # noqa: E712
            "Megatron trains experts under tp={tp} only with sequence_parallel: true",
        ),
        Rule(
            "norm_by_sequence_parallel",
            lambda c: (
                (c["transformer_impl"] == "local")
                & (c["norm"] == "rmsnorm")
                & (c["tp"] > 1)
                & (c["sequence_parallel"] == True)  # noqa: E712
            ),
            "torch's rmsnorm, which transformer_impl: local has, is not sequence-parallel over tp={tp}: "
            "sequence_parallel must be false",
        ),
        Rule(
            "local_layers",
            lambda c: (
                (c["transformer_impl"] == "local")
                & (quantized(c) | (c["tp_overlap"] == True) | (c["cuda_graphs"] != "none") | (c["cp"] > 1))  # noqa: E712
            ),
            "transformer_impl: local has dtype bf16, fp16 and fp32, no cp, no tp_overlap and no cuda_graphs",
        ),
        Rule(
            "output_bias",
            lambda c: c["attention_output_bias"] != c["mlp_bias"],
            "Megatron has biases in all linear layers or in none (but for qkv)",
        ),
        Rule(
            "bias_of_experts",
            lambda c: (c["num_experts"] > 0) & (c["mlp_bias"] == True) & (c["etp"] + (c["etp"] == 0) * c["tp"] > 1),  # noqa: E712
            "Megatron's experts have biases with etp: 1 only (tp={tp}, etp={etp})",
        ),
    ),
)


ADAPTER = Adapter(
    workload=WORKLOAD,
    configure=configure,
    reader=reader,
    package="megatron-core",
    convention="matmul-causal",
    hints={
        "No module named 'transformer_engine": "set params.transformer_impl to local, or install it",
        "custom CUDA extension fused_weight_gradient_mlp_cuda": "install Apex, or set params.arguments to "
        "--no-gradient-accumulation-fusion",
        r"can't open file [^ ]*pretrain_gpt\.py": "params.root must name a checkout of Megatron-LM",
    },
)


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
        checkpoint={
            "begun": r"\b(saving checkpoint) at iteration ",
            "whole": r"\b(successfully saved checkpoint) from iteration ",
            "stall_ms": rf"^\s+save-checkpoint \.+: (?:\({NUMBER}, )?({NUMBER})",
        },
    )
