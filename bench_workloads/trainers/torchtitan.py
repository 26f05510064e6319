"""torchtitan: any Llama or Qwen3, experts included, or a model of its own, by a generated configuration module.

On synthetic tokens. Written against torchtitan 0.3.0, whose configuration is Python: `torchtitan.train --module M
--config F` takes a `Trainer.Config` from function F of module M (`config/manager.py`). Lines of
`components/metrics.py`, `trainer.py` and `distributed/`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from bench_workloads import decoder
from bench_workloads.decoder import Columns, any_of, where
from bench_workloads.trainers.adapter import Adapter, CanSave, Launch, Reader, param, saving
from bench_workloads.trainers.driver import trainer
from bench_workloads.trainers.driver.reading import NUMBER, PatternReader
from bench_workloads.trainers.torchtitan_module import TEMPLATE
from sweep.contract import LAYOUT, ROUTINGS, Rule, Run, Scalar
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
_FAMILIES = ("llama3", "qwen3", "deepseek_v3", "gpt_oss")
_DISPATCHERS = {"alltoall": "standard", "deepep": "deepep", "hybridep": "hybridep"}
_OF_DISPATCHERS = {"AllToAll": "alltoall", "DeepEP": "deepep", "HybridEP": "hybridep"}
_QUANTIZED = {"fp8_rowwise": "float8", "mxfp8": "mxfp8", "nvfp4": "nvfp4"}
_ASYNC_MODES = {"sync": "disabled", "async": "async", "async_pinned": "async_with_pinned_mem"}
_OF_CHECKPOINT = {
    "begun": r"(Saving|Staging) the checkpoint\.",
    "whole": r"(?:checkpoint is |Finished sav)(whole|ing the checkpoint)",
    "stall_s": rf"Finished (?:saving|staging) the checkpoint in ({NUMBER}) seconds",
}
_RECOMPUTE = {"none": "None", "selective": "SelectiveAC.Config()", "full": "FullAC.Config()"}


def configure(run: Run, directory: str, steps: int) -> Launch:
    """The configuration module, and torchtitan's own entry point with it."""
    kind, checkpoints, after = saving(run)
    saved = {"checkpoint": checkpoints, "checkpoint_interval": after, "async_mode": _ASYNC_MODES.get(kind, "disabled")}
    values = _model(run) | {"steps": steps} | _layout(run) | saved | {"directory": directory}
    lines = "\n".join(f"    {name}={value!r}," for name, value in values.items())
    return Launch(
        program=("-m", "torchtitan.train", "--module", MODULE, "--config", "configuration"),
        files={
            f"{MODULE}.py": TEMPLATE.replace("VALUES", lines).replace("RECOMPUTE", _RECOMPUTE[run.layout.recompute])
        },
        env={"PYTHONPATH": ":".join(filter(None, (directory, run.env.get("PYTHONPATH"))))},
    )


def _model(run: Run) -> dict[str, Scalar]:
    family, _, flavor = param(WORKLOAD, run, "flavor", str).partition("/")
    own = "qwen3" if run.shape["num_experts"] or run.shape["qk_norm"] else "llama3"
    attention = param(WORKLOAD, run, "attention", str)
    return {**run.shape, "family": family or own, "flavor": flavor, "attention": attention}


def _layout(run: Run) -> dict[str, Scalar]:
    layout = run.layout
    # HybridEP's buffers have a fixed size, as CUDA graphs need them
    static = layout.dispatcher == "hybridep" and layout.ep > 1 and layout.cuda_graphs != "none"
    return {
        "sequence": run.sequence_length,
        "local_batch": layout.micro_batch_size * (layout.grad_accum if layout.pp > 1 else 1),
        "global_batch": run.global_batch_sequences,
        "micro_batch": layout.micro_batch_size,
        "replicate": layout.dp if layout.zero == 0 else 1,
        "shard": 1 if layout.zero == 0 else layout.dp,
        "reshard": {0: "never", 2: "never", 3: "always"}[layout.zero],
        "tp": layout.tp,
        "pp": layout.pp,
        "cp": layout.cp,
        "ep": layout.ep,
        "schedule": _SCHEDULES[layout.pp_schedule],
        "layers_per_stage": _layers_per_stage(run),
        "dispatcher": _DISPATCHERS[layout.dispatcher],
        "capacity_factor": 1.5 if static else None,
        "balanced": layout.routing == "balanced",
        "async_tp": layout.tp_overlap,
        "cuda_graphs": layout.cuda_graphs != "none",
        "compiled": run.compile,
        "spmd_backend": param(WORKLOAD, run, "spmd_backend", str),
        "dtype": _DTYPES.get(run.dtype, "bfloat16"),
        "quantized": _QUANTIZED.get(run.dtype, ""),
    }


def _layers_per_stage(run: Run) -> int | None:
    """What gives so many stages; embedding and output projection count as layers. None: torchtitan's own number."""
    layout = run.layout
    if layout.pp == 1 or layout.virtual_stages == 1:
        return None
    return -(-(int(run.shape["num_layers"] or 0) + _FURTHER_STAGES) // (layout.pp * layout.virtual_stages))


def reader(run: Run) -> Reader:
    """Steps, and what torchtitan prints about mesh, batch, pipeline and recomputation."""
    mesh = r"device mesh with parallelism: (?:(?!parallelism: ).)*\b"
    trainer = r"Trainer is initialized with (?:(?!initialized with ).)*\b"
    later = "async_pinned" if run.params.get("checkpoint") == "async_pinned" else "async"
    batch: dict[str, tuple[str, Callable[[str], Scalar]]] = {
        "micro_batch_size": (trainer + r"local batch size (\d+)", int),
        "grad_accum": (trainer + r"gradient accumulation steps (\d+)", int),
    }
    if run.layout.pp > 1:
        batch = {
            "pp_schedule": (r"Using pipeline schedule (\w+) with", lambda text: _OF_SCHEDULES.get(text, text)),
            "grad_accum": (r"Using pipeline schedule \w+ with (\d+) microbatches", int),
        }
        if run.layout.virtual_stages > 1:
            batch["virtual_stages"] = (r"microbatches and (\d+) stages", lambda n: int(n) // run.layout.pp)
    return PatternReader(
        r"(?<!validate )\bstep:\s*(\d+)\s+loss:",
        {
            "loss": rf"\bloss:\s*(?!-)({NUMBER})",  # -1 of each rank that has no loss, in a pipeline
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
            "tp_overlap": (r"(Building device mesh|Async TP is enabled)", lambda text: text.startswith("Async")),
            "compile": (
                r"(Building device mesh|Compiling each TransformerBlock)",
                lambda text: text.startswith("Comp"),
            ),
            "recompute": (r"Applied (Full|Selective)AC activation checkpointing", str.lower),
            "dtype": (
                r"(Failed to use Float8|Float8 training active|Linear layers to (?:MXFP8|NVFP4)Linear)",
                lambda text: {"Failed": "bf16", "Float8": "fp8_rowwise"}.get(text.split()[0], text[17:-6].lower()),
            ),
            "cuda_graphs": (
                r"(Recorded CUDA graph|CUDA graph capture is only supported)",
                lambda text: "full_iteration" if text.startswith("Recorded") else "none",
            ),
            "checkpoint": (r"(Saving|Staging) the checkpoint\.", lambda text: "sync" if text == "Saving" else later),
            "dispatcher": (r"experts: dispatcher (\w+),", lambda text: _OF_DISPATCHERS.get(text, text)),
            "routing": (
                r"experts: dispatcher \w+, balanced (True|False)",
                {"True": "balanced", "False": "natural"}.__getitem__,
            ),
            **batch,
        },
        begun=r"Training starts at step",
        checkpoint=_OF_CHECKPOINT,
    )


def _other_stages(c: Columns) -> Any:
    stages = c["pp"] * c["virtual_stages"]
    blocks = c["num_layers"] + _FURTHER_STAGES
    return (c["pp"] > 1) & (c["virtual_stages"] > 1) & (-(-blocks // -(-blocks // stages)) != stages)


def _stages(c: Columns) -> Any:
    """Stages over all ranks, by columns: two on each rank where the schedule has several."""
    several = any_of(c["pp_schedule"], (*LOOPED, *V_SCHEDULES))
    return c["pp"] * (1 + (c["pp"] > 1) * several)


@dataclass(frozen=True, kw_only=True)
class Settings(CanSave):
    """torchtitan's parameters."""

    attention: str = "flex"
    """attention kernel: flex, flex_flash or varlen"""
    flavor: str = ""
    """a model of torchtitan's own registry, FAMILY/NAME such as deepseek_v3/671B; empty: the grid's shape"""
    spmd_backend: str = "spmd_types"
    """spmd_types (needs a torch after 2.13), partial_dtensor or full_dtensor"""


def _unless_its_own(rule: Rule) -> Rule:
    """The rule where the grid's shape is built, rather than a model of torchtitan's."""
    head_dim = rule is decoder.HEAD_DIM  # of Qwen3 free
    return replace(
        rule,
        broken=lambda c: (
            (c["flavor"] == "") & rule.broken(c) & ~(head_dim & ((c["num_experts"] > 0) | (c["qk_norm"] == True)))  # noqa: E712
        ),
    )


WORKLOAD = trainer(
    Settings,
    axes=frozenset(
        {*LAYOUT, "dtype", "compile", "virtual_stages", "dispatcher", "routing", "tp_overlap", "cuda_graphs"}
    ),
    lacks={
        "etp": "torchtitan 0.3.0 has no expert_tensor_parallel_degree any more",
        "pipeline_layout": "the adapter states the number of layers per stage, by virtual_stages",
        "recompute_modules": "SelectiveAC chooses operations, not modules",
        "recompute_layers": "FullAC and SelectiveAC recompute in every layer",
        "ep_overlap": "torchtitan runs the experts' exchange and the computation of other micro-batches in turn",
        "fp8_params": "torchtitan 0.3.0 has no float8 scaled per tensor, whose weights alone torchao gathers so",
    },
    choices={
        "zero": (0, 2, 3),
        "recompute": ("none", "selective", "full"),
        "pp_schedule": tuple(_SCHEDULES),
        "dtype": (*_DTYPES, *_QUANTIZED),
        "dispatcher": tuple(_DISPATCHERS),
        "routing": ROUTINGS,
        "cuda_graphs": ("none", "full_iteration"),
        "spmd_backend": ("spmd_types", "partial_dtensor", "full_dtensor"),
        "compile": (False, True),
        "attention": ("flex", "flex_flash", "varlen"),
        "checkpoint": ("none", *_ASYNC_MODES),
    },
    rules=(
        *(_unless_its_own(rule) for rule in decoder.LLAMA if rule not in (decoder.DENSE, decoder.NO_QK_NORM)),
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
            "ep_by_shards",
            lambda c: (c["ep"] > 1) & ((c["zero"] == 0) & (c["dp"] > 1) | (c["dp"] * c["cp"] * c["tp"] % c["ep"] != 0)),
            "ep={ep} is taken out of dp*cp*tp = {dp}*{cp}*{tp} ranks over which weights are sharded (zero 2 or "
            "3): torchtitan has no experts across plain replicas",
        ),
        Rule(
            "virtual_stages_by_layers",
            _other_stages,
            "layers of equal number per stage make no virtual_stages={virtual_stages} per rank of pp={pp}",
        ),
        Rule(
            "tp_overlap_compiled",
            lambda c: (c["tp_overlap"] == True) & ((c["compile"] == False) | (c["tp"] == 1)),  # noqa: E712
            "torchtitan's asynchronous tensor parallelism needs compile: true and tp > 1",
        ),
        Rule(
            "cuda_graphs",
            lambda c: (
                (c["cuda_graphs"] != "none") & ((c["pp"] > 1) | ((c["ep"] > 1) & (c["dispatcher"] != "hybridep")))
            ),
            "torchtitan's CUDA graphs have no pipeline (pp={pp}), and of experts on other ranks HybridEP's only",
        ),
        Rule(
            "quantized_dispatcher",
            lambda c: (
                (c["num_experts"] > 0) & (c["dispatcher"] == "deepep") & any_of(c["dtype"], ("fp8_rowwise", "mxfp8"))
            ),
            "DeepEP does not pad what each expert gets, as {dtype} needs it in torchtitan: alltoall and hybridep do",
        ),
        Rule(
            "routing",
            where("routing", lambda text: text.startswith("skewed")),
            "torchtitan can force balanced loads of the experts (debug.moe_force_load_balance), not {routing}",
        ),
        Rule(
            "nvfp4_experts",
            lambda c: (c["num_experts"] > 0) & (c["dtype"] == "nvfp4"),
            "torchtitan has nvfp4 for dense layers only",
        ),
        Rule(
            "flavor",
            where("flavor", lambda text: bool(text) and not text.startswith(tuple(f"{name}/" for name in _FAMILIES))),
            f"params.flavor is FAMILY/NAME, FAMILY one of {', '.join(_FAMILIES)}, not {{flavor!r}}; torchtitan 0.3.0 "
            "has no llama4 (its pull request 3573 removed it)",
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
    configure=configure,
    reader=reader,
    package="torchtitan",
    convention="torchtitan",
    hints={
        "all parameters must be DTensors on the full SPMD mesh": "set params.spmd_backend to partial_dtensor: "
        "spmd_types needs a torch after 2.13",
        "Torch not compiled with CUDA enabled|Found no NVIDIA driver": "torchtitan 0.3 needs a GPU: its device is CUDA "
        "where torch finds none",
    },
)
