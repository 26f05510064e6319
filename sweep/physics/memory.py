"""Peak memory of a rank, by pipeline stage, kind and time: for numbers or arrays over a million candidates.

The peak is that of the second forward and backward, when the optimizer's states and every activation in flight are
allocated. Bytes throughout; 1 GiB = 2^30.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweep.physics import activations, pipeline
from sweep.physics.columns import Numbers, element_bytes, equals, local_tokens, read, recomputed_share
from sweep.physics.hardware import GIB, Gpu
from sweep.physics.profiles import PROFILES, MemoryProfile
from sweep.physics.shapes import shape_columns
from sweep.physics.states import gathered_bytes, passing_layer_bytes, state_bytes

STATE_KINDS = ("weights", "gradients", "master_weights", "optimizer_states", "gradient_buckets")
STEP_KINDS = ("activations", "logits", "workspace", "pipeline_buffers", "gathered")
CONTEXT_BYTES = 0.6 * GIB
"""CUDA context and kernels of one process: 0.5 to 2 GB in publications, about 0.6 on H100 with lazy kernel loading"""
NCCL_BYTES_PER_GROUP = 0.2 * GIB
"""channels and proxy buffers of one communicator (NCCL's defaults: 4 MiB per channel and peer)"""
USABLE = 0.995
"""fraction of a GPU's memory available to a process: an 80 GB H100 reports 81,559 MiB, an A100 81,920"""


def breakdown(columns: Mapping[str, Any], profile: MemoryProfile, stage: str = "first") -> dict[str, Any]:
    """Bytes by kind on a rank of the stage ("first", "middle" or "last") at its peak, and their "total".

    Columns of a layout, ``sequence_length`` and a shape. The total includes what the allocator reserves in excess
    (profile.fragmentation), but neither the CUDA context nor NCCL, which torch does not count.
    """
    columns = Numbers.of(columns)
    shape = shape_columns(columns)
    found = state_bytes(columns, shape, stage, profile)
    found |= step_bytes(columns, profile, stage)
    # torch makes the gradients of a step of one micro-batch in its backward: at the peak some are not there yet. That
    # peak is the loss's or, where gradients take more than activations and logits, that of the backward's end. Sharded
    # gradients count as there: they take little, and whole ones on their way to their owners about as much.
    once = (read(columns, "grad_accum") == 1) & (read(columns, "pp") == 1) & (read(columns, "zero") == 0)
    at_loss = found["activations"] + found["logits"]
    made_later = np.where(once & profile.fsdp, np.minimum(found["gradients"], at_loss), 0.0)
    found["gradients"] = found["gradients"] - made_later
    found["fixed"] = np.asarray(profile.fixed_bytes)
    found["fragmentation"] = (profile.fragmentation - 1) * sum(found.values())
    found["total"] = sum(found.values())
    return found


def step_bytes(columns: Mapping[str, Any], profile: MemoryProfile, stage: str) -> dict[str, Any]:
    """Bytes by kind that forward and backward need on top of the states."""
    columns = Numbers.of(columns)
    shape, tokens = shape_columns(columns), local_tokens(columns)
    layers = pipeline.layers(columns, shape, stage, profile.placement)
    layers = layers + shape.mtp_layers * pipeline.has_output(columns, stage)
    flight = pipeline.in_flight(columns, stage)
    per_layer = columns.once(("retained", profile), lambda: activations.layer_bytes_per_token(columns, shape, profile))
    whole = columns.once(("whole", profile), lambda: activations.whole_layer_bytes_per_token(columns, shape, profile))
    share = recomputed_share(columns, pipeline.chunks_per_rank(columns))
    retained = (share * per_layer + (1 - share) * whole) * layers
    split = read(columns, "tp") if profile.sequence_parallel else 1.0
    embedding = 8.0 + profile.dropout * shape.hidden_size / split  # numbers of tokens, mask of the dropout
    retained = retained + embedding * pipeline.has_embedding(columns, stage)
    hidden = activations.split_hidden_bytes_per_token(columns, shape, profile)
    logits = logit_bytes(columns, profile, stage) + tokens * 2 * hidden * pipeline.has_output(columns, stage)
    # Buffers for gathered inputs under tp persist from layer to layer
    whole_hidden = activations.whole_hidden_bytes_per_token(columns, shape)
    gathered = np.where(read(columns, "tp") > 1, whole_hidden * profile.workspace_buffers, 0.0)
    passing = columns.once(("passing", profile), lambda: _passing_bytes(columns, shape, profile, whole - per_layer))
    return {
        "activations": tokens * retained * flight,
        "logits": logits,
        # The loss's peak is over when the last layer's backward begins: the larger of both allocations counts.
        "workspace": np.maximum(passing - (0.0 if profile.reserved else logits), 0.0) + tokens * gathered,
        "pipeline_buffers": tokens * hidden * _buffers_between_stages(columns, profile, stage),
        "gathered": gathered_bytes(columns, shape, stage, profile),
    }


def logit_bytes(columns: Mapping[str, Any], profile: MemoryProfile, stage: str) -> Any:
    """Logits at the loss's peak: of one micro-batch, and what is stored of those that wait for their backward.

    In chunks of tokens: logits of one chunk, and the gradients of the output projection's weight and input; then, where
    that is reduced, its copy in fp32.
    """
    whole = _whole_logit_bytes(columns, profile, stage)
    if not profile.loss_chunk_tokens:
        return whole
    shape, tokens, chunk = shape_columns(columns), local_tokens(columns), profile.loss_chunk_tokens
    follows = (read(columns, "pp") == 1) | equals(columns, "pp_schedule", "1f1b", "interleaved_1f1b")
    chunked = (read(columns, "tp") == 1) & follows & (tokens > chunk)
    element, weights = element_bytes(columns) * (1 + shape.mtp_layers), shape.vocab_size * shape.hidden_size
    reduced = (element + 4.0) * weights * (read(columns, "dp") * read(columns, "cp") > 1)
    in_chunks = np.maximum(chunk * shape.vocab_size * profile.chunk_logit_bytes + element * weights, reduced)
    in_chunks = in_chunks + element * shape.hidden_size * tokens
    return np.where(chunked, in_chunks * pipeline.has_output(columns, stage), whole)


def _whole_logit_bytes(columns: Mapping[str, Any], profile: MemoryProfile, stage: str) -> Any:
    split = read(columns, "tp") if profile.vocabulary_parallel else np.ones(())
    shape = shape_columns(columns)
    logits = local_tokens(columns) * (1 + shape.mtp_layers) * shape.vocab_size / split
    logits = logits * pipeline.has_output(columns, stage)
    per_logit = np.where(split > 1, profile.split_logit_bytes or profile.logit_bytes, profile.logit_bytes)
    if not profile.loss_in_fp32:
        per_logit = per_logit * element_bytes(columns) / 2
    if not profile.torch_pipeline:
        return logits * per_logit
    outputs = np.where(read(columns, "pp") > 1, element_bytes(columns), 0.0)
    waiting = np.where(equals(columns, "pp_schedule", "gpipe", "looped_bfs"), pipeline.in_flight(columns, stage) - 1, 0)
    return logits * (per_logit + outputs + waiting * (outputs + profile.waiting_logit_bytes))


def peak_bytes(columns: Mapping[str, Any], profile: MemoryProfile) -> Any:
    """Bytes of the heaviest rank, as torch counts them."""
    return heaviest(columns, profile)[0]


def heaviest(columns: Mapping[str, Any], profile: MemoryProfile) -> tuple[Any, Any, Any]:
    """Of the heaviest rank (its bytes as torch counts them, those of STATE_KINDS, which of ``pipeline.STAGES``)."""
    columns = Numbers.of(columns)
    total, states, number = (np.zeros(np.shape(read(columns, "pp"))) for _ in range(3))
    for i, stage in enumerate(pipeline.STAGES):
        exists = pipeline.exists(columns, stage)
        if not np.any(exists):
            continue
        found = breakdown(columns, profile, stage)
        more = exists & (found["total"] > total)
        total = np.where(more, found["total"], total)
        states = np.where(more, sum(found[kind] for kind in STATE_KINDS), states)
        number = np.where(more, i, number)
    return total, states, number.astype(np.int64)


def outside_torch_bytes(columns: Mapping[str, Any]) -> Any:
    """CUDA context and NCCL's buffers: one communicator per axis that is wider than 1, and one for all ranks."""
    groups = sum((read(columns, axis) > 1) * 1.0 for axis in ("dp", "tp", "pp", "cp", "ep"))
    return CONTEXT_BYTES + NCCL_BYTES_PER_GROUP * (groups + (groups > 0))


def timeline(columns: Mapping[str, Any], profile: MemoryProfile, stage: str = "first") -> dict[str, dict[str, Any]]:
    """Bytes by kind at each point of the first two steps: phase -> kind -> bytes, with their "total".

    Optimizer states are made at the first optimizer step, so the second forward and backward is the higher one.
    """
    full = breakdown(columns, profile, stage)
    whole = full | state_bytes(Numbers.of(columns), shape_columns(Numbers.of(columns)), stage, profile)
    weights = ("weights", "master_weights")
    held = (*weights, "gradients", "gradient_buckets")
    phases = {
        "model init": weights,
        "gradient accumulator": held,
        "first forward-backward peak": (*held, *STEP_KINDS),
        "first optimizer step": (*held, "optimizer_states"),
        "second forward-backward peak": (*held, "optimizer_states", *STEP_KINDS),
        "second optimizer step": (*held, "optimizer_states"),
    }
    found = {}
    for phase, kinds in phases.items():
        part = {kind: (full if "activations" in kinds else whole)[kind] for kind in kinds} | {"fixed": full["fixed"]}
        part["fragmentation"] = (profile.fragmentation - 1) * sum(part.values())
        found[phase] = part | {"total": sum(part.values())}
    return found


@dataclass(frozen=True)
class MemoryUse:
    """Which candidates can fit, with the numbers of the reason. Arrays, or numbers for one candidate."""

    needed_bytes: Any
    """what the heaviest rank is predicted to need, with the CUDA context and NCCL"""
    available_bytes: float | None
    """what the GPU has; None if unknown, and then everything fits"""
    limit_bytes: float | None
    """the largest accepted prediction: ``available_bytes`` plus the model's error margin"""

    @property
    def fits(self) -> Any:
        """What a plan accepts: nothing predicted above the limit."""
        return self.needed_bytes <= (np.inf if self.limit_bytes is None else self.limit_bytes)

    @property
    def over(self) -> Any:
        """Predicted to need more than the GPU has. What still fits is over by less than the model's error."""
        return self.needed_bytes > (np.inf if self.available_bytes is None else self.available_bytes)


def usable_bytes(gpu: Gpu) -> float | None:
    """Memory that a process can have: data sheets say GB and mean GiB (80 GB is 80 GiB, less the driver's part)."""
    return None if gpu.memory_bytes is None else gpu.memory_bytes / 1e9 * GIB * USABLE


def fits(columns: Mapping[str, Any], gpu: Gpu, profile: MemoryProfile = PROFILES["builtin"]) -> MemoryUse:
    """Whether the heaviest rank can fit: rejects only what is predicted to be over by more than profile.margin."""
    needed = peak_bytes(columns, profile) + outside_torch_bytes(columns)
    available = usable_bytes(gpu)
    return MemoryUse(needed, available, None if available is None else available * (1 + profile.margin))


def _buffers_between_stages(columns: Mapping[str, Any], profile: MemoryProfile, stage: str) -> Any:
    """How many micro-batches' hidden states a rank holds for its neighbours.

    torch.distributed.pipelining makes a buffer per micro-batch, once, for each stage that receives from an earlier one
    and for each that gets gradients from a later one. Received hidden states in flight count as layer inputs.
    """
    pp = read(columns, "pp")
    if not profile.torch_pipeline:
        return np.where(pp > 1, 2.0, 0.0)
    stages, micro_batches = pipeline.chunks_per_rank(columns), read(columns, "grad_accum")
    flight = pipeline.in_flight(columns, stage)
    forward = (stages - pipeline.has_embedding(columns, stage)) * (micro_batches - flight)
    backward = (stages - pipeline.has_output(columns, stage)) * (micro_batches + flight)
    return np.where(pp > 1, forward + backward, 0.0)


def _passing_bytes(columns: Mapping[str, Any], shape: Any, profile: MemoryProfile, recomputed: Any) -> Any:
    """One layer's needs in its backward: what is ``recomputed`` (per token), what is gathered, and gradients."""
    per_token = recomputed + activations.backward_bytes_per_token(columns, shape)
    return local_tokens(columns) * per_token + passing_layer_bytes(columns, shape, profile)
