"""How trainers differ in their GPU memory use: one value per trainer, used by every formula of the memory model.

Bytes are per parameter of a rank's part of the model unless a field says otherwise. Which of them ZeRO shards follows
Rajbhandari et al. 2020 (arXiv 1910.02054): master weights and optimizer states from stage 1, gradients from stage 2,
weights in stage 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

OPTIMIZER_STATE_BYTES: dict[str, float] = {
    "adamw": 8,
    "adamw-bf16": 4,
    "adamw-8bit": 2,
    "lion": 4,
    "sgd": 0,
    "sgd-momentum": 4,
    "adafactor": 4,
    "muon": 4,
}
"""optimizer -> bytes of its states per parameter, master weights not counted (ML Engineering, "Anatomy of Model's
Memory Usage"; Adafactor's factored moments are smaller still, 4 is what that text reckons with)"""


@dataclass(frozen=True, kw_only=True)
class MemoryProfile:
    """What one trainer holds, and when."""

    name: str
    gradient_bytes: float = 4
    """gradients allocated between micro-batches; sharded from stage 2 on"""
    gradients_whole_until: int = 1
    """last stage in which gradients are whole"""
    gradients_held_until: int = 3
    """last stage in which gradients are held apart from those that master_bytes counts"""
    master_bytes: float = 4
    """fp32 copy of the weights that the optimizer updates; sharded from stage 1 on"""
    optimizer: str = "adamw"
    """the optimizer, a key of OPTIMIZER_STATE_BYTES"""
    fsdp: bool = False
    """built on FSDP2: the fp32 shards are the weights, half-precision copies exist while they are gathered; stage 1
    reduces at once where a step is one micro-batch; a pipeline reduces once, so that gradients are whole in it"""
    bucket_bytes: float = 0
    """communication buckets of gradients, on top of the gradients; only where dp * cp > 1, in stages 0 and 1"""
    gathered_layers: float = 2
    """stage 3: layers whose weights are whole at once: the one that computes and the one fetched ahead"""
    gathered_gradient_bytes: float = 2
    """stages 2 and 3: bytes per parameter of whole gradients of those layers, on their way to being scattered"""
    whole_ends: bool = False
    """embedding and output projection are FSDP groups of their own. At the peak of stage 3 the latter's weights are
    whole; of the gradient reduced last, the embedding's, what is reduced in fp32 is held until the next reduction"""
    plain_alone: bool = False
    """a rank without peers that computes in the dtype of its weights holds no second copy of them"""
    sequence_parallel: bool = True
    """norms, residual path and dropout are split over tp too (arXiv 2205.05198 sec. 4.2.2)"""
    gathered_inputs_retained: bool = False
    """the inputs of column-parallel matrices are stored whole, rather than gathered again in backward"""
    flash_attention: bool = True
    """attention scores are never stored"""
    attention: str = ""
    """the kernel that a parameter chose, as ``Behaviour.attention``; empty: the trainer's own"""
    fused_activation: bool = False
    """a gated activation is one kernel that stores its inputs only, not the activation's output"""
    routed_copies: float = 2.0
    """copies that are stored of each token sent to an expert: its input; its output where that is weighted; and, eager,
    the weighted output, which torch's index_add stores. Megatron Core weights the activation (moe/experts.py)"""
    inputs_rounded: bool = True
    """8-bit products store their inputs in 8 bits; torchao (float8_linear.py, fp8_grouped_mm.py) as they were before"""
    dropout: bool = False
    """dropout masks are stored: GPT-2 and GPT-3 style training"""
    selective: str = "attention"
    """what selective recomputation drops: "attention" (scores, arXiv 2205.05198 sec. 5), or "cheap" (all but the
    outputs of matrix products, attention and collectives)"""
    whole_kv_in_cp: bool = False
    """context parallelism stores keys and values of the whole sequence, rather than passing them round a ring"""
    logit_bytes: float = 10
    """bytes per logit at the peak of the loss: half-precision logits, fp32 copy, probabilities or gradient"""
    split_logit_bytes: float = 0
    """the same where tp splits the logits; 0: no other than logit_bytes"""
    loss_in_fp32: bool = False
    """the loss stores nothing in half precision: bytes per logit are the same in fp32 runs, where else they double"""
    waiting_logit_bytes: float = 0
    """bytes per logit of every further micro-batch that waits between its loss and its backward (gpipe)"""
    loss_chunk_tokens: int = 0
    """logits exist of at most so many tokens at once, where tp does not split the vocabulary and the schedule runs each
    backward right after its forward; 0: of the whole micro-batch"""
    chunk_logit_bytes: float = 12
    """bytes per logit of such a chunk: logits in half precision and in fp32, their gradient in fp32 and in half"""
    vocabulary_parallel: bool = True
    """logits stay split over tp"""
    workspace_buffers: float = 1
    """whole activations (micro-batch tokens * hidden) held in passing under tp: gathered inputs and gradients"""
    torch_pipeline: bool = False
    """built on torch.distributed.pipelining: a buffer per micro-batch of a step for what each neighbour sends, and a
    stage's outputs, logits too, until their backward; else two buffers in all"""
    placement: str = "even"
    """layers of a pipeline stage: "even", "cost" (the output projection counts by its parameters) or "balanced": see
    ``pipeline.layers``"""
    stages_beyond_layers: int = 0
    """stages that a pipeline can have in addition to the model's layers: what else the trainer places by itself"""
    fragmentation: float = 1.0
    """what the caching allocator reserves per byte that is allocated at the peak"""
    reserved: bool = False
    """peaks are what the allocator reserves: what the loss leaves is not yet used again by the first backward"""
    frozen_weights: bool = False
    """only adapters are trained (LoRA)"""
    adapts_output: bool = False
    """the attention's output matrix has an adapter, too"""
    compiled: bool = False
    """layers are compiled: of what "cheap" selective recomputation stores, not the output of a layer's last matrix"""
    margin: float = 0.1
    """fraction by which a prediction must exceed a GPU's memory before a layout is rejected; 0 if the profile was
    checked against many measured peaks, infinite: none is rejected"""
    fixed_bytes: float = 0
    """small allocations that torch counts: rotary tables, kernels' workspaces"""
    source: str = ""


def _profiles(*found: MemoryProfile) -> dict[str, MemoryProfile]:
    return {profile.name: profile for profile in found}


PROFILES: dict[str, MemoryProfile] = _profiles(
    MemoryProfile(
        name="builtin",
        inputs_rounded=False,
        fsdp=True,
        whole_ends=True,
        plain_alone=True,
        loss_chunk_tokens=2048,
        gathered_inputs_retained=True,
        selective="cheap",
        whole_kv_in_cp=True,
        logit_bytes=12,
        split_logit_bytes=16,
        routed_copies=3,
        loss_in_fp32=True,
        waiting_logit_bytes=4,
        torch_pipeline=True,
        placement="balanced",
        source="the transformer workload: FSDP2 in every stage, fp32 weights are the master copy, bf16 copies of them "
        "are gathered; gradients accumulate in fp32; the loss keeps log-probabilities, and in backward their gradient "
        "and that of the logits (of loss_parallel a further copy), all fp32",
    ),
    MemoryProfile(
        name="nanotron",
        bucket_bytes=2,
        logit_bytes=10,
        workspace_buffers=3,
        placement="cost",
        stages_beyond_layers=4,
        fragmentation=1.12,
        reserved=True,
        margin=0.0,
        fixed_bytes=0.25 * 2**30,
        source="huggingface/nanotron: FP32GradientAccumulator (bf16 weights, fp32 gradient buffer, fp32 weights), "
        "sharded_cross_entropy, DDP's bf16 buckets, "
        "layers placed by get_block_compute_costs; final norm, output projection, cast and loss are blocks of the "
        "pipeline as a layer is (models/llama.py, build_model)",
    ),
    MemoryProfile(
        name="megatron",
        fused_activation=True,
        routed_copies=1,
        logit_bytes=6,
        source="NVIDIA/Megatron-LM: training/theoretical_memory_usage.py (18 bytes, or 6 + 12 / dp with the "
        "distributed optimizer), arXiv 2205.05198",
    ),
    MemoryProfile(
        name="torchtitan",
        inputs_rounded=False,
        fsdp=True,
        gathered_inputs_retained=True,
        selective="cheap",
        logit_bytes=10,
        torch_pipeline=True,
        stages_beyond_layers=2,
        source="pytorch/torchtitan: FSDP2 with fp32 shards, bf16 gathered weights, fp32 reduced gradients; "
        "torch.distributed.pipelining; embedding and output projection count as a layer each where layers are cut into "
        "stages (distributed/pipeline_parallel.py)",
    ),
    MemoryProfile(
        name="picotron",
        gradient_bytes=2,
        bucket_bytes=2,
        master_bytes=0,
        optimizer="adamw-bf16",
        sequence_parallel=False,
        logit_bytes=6,
        vocabulary_parallel=False,
        margin=0.2,
        source="huggingface/picotron train.py, bucket.py, tensor_parallel.py: bf16 weights and moments, no master; "
        "with dp gradients are summed in fp32 (counted for cp alone too); the output projection gathers its logits; "
        "no peak of it was compared",
    ),
    MemoryProfile(
        name="deepspeed",
        gradient_bytes=2,
        gradients_whole_until=2,
        gradients_held_until=2,
        master_bytes=8,
        gathered_layers=1,
        logit_bytes=10,
        source="deepspeedai/DeepSpeed docs/code-docs/source/memory.rst: 4 N + 16 N / n (stage 2), 18 N / n and the "
        "largest layer (stage 3); master 8 = fp32 weights and fp32 gradients",
    ),
    MemoryProfile(
        name="paper",
        gradient_bytes=2,
        flash_attention=False,
        dropout=True,
        logit_bytes=4,
        source="ZeRO (arXiv 1910.02054): 2 + 2 + 12 bytes; activations of arXiv 2205.05198: s b h (34 + 5 a s / h)",
    ),
)
"""name -> profile"""
PROFILES["transformer"] = PROFILES["builtin"]

SIZED_TRAINER = "megatron"
"""whose speed `sweep size` predicts by default: the one with most published results of large models"""


SETTINGS = (
    "weights_dtype",
    "sequence_parallel",
    "loss_parallel",
    "attention",
    "loss_chunk_tokens",
    "tp_mode",
    "frozen_weights",
    "keep",
)
"""parameters of workloads that change their memory use, or what is known of it"""
_WITHOUT_SEQUENCE_PARALLELISM = {"sequence_parallel": False, "tp_mode": "ALL_REDUCE"}
"""parameter of a trainer (Megatron-LM and Megatron-Bridge; nanotron) -> the value that turns the split off"""


BUILT_ON = {"nemo": "megatron"}
"""trainer -> the one whose memory it has: Megatron-Bridge runs Megatron Core"""
ANY_SCRIPT = frozenset({"deepspeed"})
"""trainers that run a script of the user's: their profile has the states of a published estimate, but whether
the script recomputes its activations is unknown"""


def with_frozen_weights(profile: MemoryProfile) -> MemoryProfile:
    """The profile where only adapters are trained (LoRA): no gradients, master copies or moments of the weights.

    Where fp32 shards are the weights (FSDP), frozen ones are stored in half precision. The adapters' own states, a
    hundredth of the weights' or less, are not counted.
    """
    return replace(
        profile,
        gradient_bytes=0,
        gathered_gradient_bytes=0,
        bucket_bytes=0,
        master_bytes=2 if profile.fsdp else 0,
        optimizer="sgd",
        frozen_weights=True,
    )


def profile_of(workload: str, params: Mapping[str, Any], *, compiled: bool = False) -> MemoryProfile | None:
    """The profile of a workload with these parameters; None if the workload's memory use is unknown.

    ``compiled``: layers and loss are compiled, as measured on an H200 (docs/gpu-results.md): an activation stores its
    inputs only, and the loss needs no fp32 copy of the logits on top of their gradient.
    """
    if workload in ANY_SCRIPT:
        return None
    profile = PROFILES.get(BUILT_ON.get(workload, workload))
    if profile is None:
        return None
    if profile is not PROFILES["builtin"]:
        profile = with_frozen_weights(profile) if params.get("frozen_weights") else profile
        if params.get("keep") == "all":  # what the recipe offloads, recomputes or stores in fewer bits is its own
            profile = replace(profile, margin=float("inf"))
        whole = any(params.get(name) == value for name, value in _WITHOUT_SEQUENCE_PARALLELISM.items())
        return replace(profile, sequence_parallel=False) if whole else profile
    single = params.get("weights_dtype") == "bf16"
    return replace(
        profile,
        optimizer="adamw-bf16" if single else profile.optimizer,
        sequence_parallel=bool(params.get("sequence_parallel", True)),
        vocabulary_parallel=bool(params.get("loss_parallel", True)),
        flash_attention=params.get("attention") != "math",
        attention="flash-2" if params.get("attention") == "flash" else "",
        master_bytes=2 if single else profile.master_bytes,
        gradient_bytes=2 if single else profile.gradient_bytes,
        compiled=compiled,
        fused_activation=compiled,
        routed_copies=2 if compiled else profile.routed_copies,
        logit_bytes=6 if compiled else profile.logit_bytes,
        loss_chunk_tokens=int(params.get("loss_chunk_tokens", profile.loss_chunk_tokens)),
        chunk_logit_bytes=10 if compiled else profile.chunk_logit_bytes,
        waiting_logit_bytes=0 if compiled else profile.waiting_logit_bytes,
    )
