"""Seconds of one layer's kernels for one micro-batch on one rank, by kind: matrix products, attention, memory traffic.

Each is a pair (forward, backward) of numbers or arrays over candidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from sweep.contract import FORMATS
from sweep.physics import constants, experts
from sweep.physics.columns import RECIPE, element_bytes, equals, expert_width, local_tokens, mentions, read, words_in
from sweep.physics.machine import Machine
from sweep.physics.profiles import MemoryProfile
from sweep.physics.shapes import router_parameters, shape_columns, window_share
from sweep.physics.trainers import ANY_TRAINER, Behaviour

Columns = Mapping[str, Any]
CAST_BYTES = 5.0
"""of memory traffic to scale and cast an element to 8 bits: two reads of 2 bytes, one write of 1"""


class Passes(NamedTuple):
    """Seconds of a forward and of its backward."""

    forward: Any
    backward: Any


def product_s(
    rows: Any,
    width: Any,
    depth: Any,
    flops_per_s: Any,
    machine: Machine,
    groups: Any,
    together: Any = np.inf,
) -> Any:
    """Seconds of ``groups`` products of rows x depth with depth x width, of which so many run ``together``.

    Half a wave of thread blocks is idle on average, and a block first fills its pipeline; no product is faster than the
    memory that it reads and writes (roofline).
    """
    wave = machine.multiprocessors * constants.TILE.median / (rows * width)
    idle = 0.5 * wave / np.minimum(groups, together)
    compute = 2.0 * rows * width * depth * groups / flops_per_s * (1 + idle) * (1 + constants.DEPTH.median / depth)
    moved = 2.0 * groups * (rows * depth + depth * width + rows * width)
    return np.maximum(compute, moved / machine.memory_bytes_per_s)


@dataclass(frozen=True)
class _Products:
    """The speed of a layer's matrix products."""

    flops_per_s: Any
    machine: Machine
    frozen: bool
    """weights have no gradient"""
    together: float = np.inf
    """products of experts that run at once"""

    def both(self, rows: Any, width: Any, depth: Any, groups: Any = 1.0) -> Passes:
        """A product, and those of its backward: gradients of its input and of its weight."""

        def seconds(rows: Any, width: Any, depth: Any) -> Any:
            return product_s(rows, width, depth, self.flops_per_s, self.machine, groups, self.together)

        to_weight = 0.0 if self.frozen else seconds(depth, width, rows)
        return Passes(seconds(rows, width, depth), seconds(rows, depth, width) + to_weight)


def products(columns: Columns, machine: Machine, behaviour: Behaviour = ANY_TRAINER, *, frozen: bool = False) -> Passes:
    """The matrices of one layer: query, key and value; output; the MLP's, or those of experts.

    ``frozen`` weights have no gradient.
    """
    shape, tp, rows = shape_columns(columns), read(columns, "tp"), local_tokens(columns)
    speed = _speed(columns, machine, behaviour, frozen=frozen)
    hidden = np.asarray(shape.hidden_size, dtype=np.float64)
    heads, kv = shape.num_heads * shape.head_dim / tp, np.maximum(shape.num_kv_heads / tp, 1) * shape.head_dim
    into = speed.both(rows, heads + 2 * kv, hidden)
    if np.any(latent := np.asarray(shape.kv_rank) > 0):
        through = [sum(pair) for pair in zip(*_latent(rows, shape, tp, speed), strict=True)]
        into = Passes(*(np.where(latent, *pair) for pair in zip(through, into, strict=True)))
    found = [into, speed.both(rows, hidden, heads)]
    found += _mlp(columns, shape, speed)
    return Passes(sum(one.forward for one in found), sum(one.backward for one in found))


def last_product_s(columns: Columns, machine: Machine, behaviour: Behaviour) -> Any:
    """Of the forward's products, the last of a dense layer. A mixture weighs its outputs, which backward needs."""
    shape = shape_columns(columns)
    width = np.asarray(shape.intermediate_size) / read(columns, "tp")
    mlp = _dense_mlp(columns, shape, width, _speed(columns, machine, behaviour))
    return (1 - experts.share(columns)) * mlp[-1].forward if mlp else 0.0


def _speed(columns: Columns, machine: Machine, behaviour: Behaviour, *, frozen: bool = False) -> _Products:
    together = constants.STREAMS.median if behaviour.kernel_per_expert else np.inf
    rate = machine.by_dtype(columns, machine.matmul_rate) * constants.SLOWEST_GPU.median
    return _Products(rate, machine, frozen, together)


def _latent(rows: Any, shape: Any, tp: Any, speed: _Products) -> list[Passes]:
    """Products of latent attention before its scores: to the latents, whole on each rank, then to the heads."""
    hidden, kv_rank = np.asarray(shape.hidden_size, dtype=np.float64), np.maximum(shape.kv_rank, 1)
    queries, down = shape.num_heads * (shape.head_dim + shape.rope_head_dim) / tp, np.asarray(shape.q_rank) > 0
    return [
        speed.both(rows, np.asarray(shape.q_rank) + kv_rank + shape.rope_head_dim, hidden),
        speed.both(rows, queries, np.where(down, shape.q_rank, hidden)),
        speed.both(rows, 2 * shape.num_heads * shape.head_dim / tp, kv_rank),
    ]


def made_again_s(columns: Columns, machine: Machine, behaviour: Behaviour) -> Any:
    """Seconds of a layer's products, forward, that ``recompute_modules`` name: "mla_up_proj" those from latents to
    heads, "mlp" those of a dense layer's MLP, "moe" those of experts.
    """
    shape, speed = shape_columns(columns), _speed(columns, machine, behaviour)
    latent, dense, mixed = (mentions(columns, "recompute_modules", name) for name in ("mla_up_proj", "mlp", "moe"))
    latent = latent * (np.asarray(shape.kv_rank) > 0)
    if not np.any(latent + dense + mixed):
        return 0.0
    up = _latent(local_tokens(columns), shape, read(columns, "tp"), speed)[1:]
    mlp = _mlp(columns, shape, speed, dense, mixed)
    return latent * sum(one.forward for one in up) + sum(one.forward for one in mlp)


def routed_s(columns: Columns, machine: Machine, behaviour: Behaviour) -> Any:
    """Seconds of the products of a layer's routed experts, forward."""
    each = _routed(columns, shape_columns(columns), _speed(columns, machine, behaviour))
    return experts.share(columns) * sum(one.forward for one in each)


def _mlp(columns: Columns, shape: Any, speed: _Products, dense: Any = 1.0, mixed: Any = 1.0) -> list[Passes]:
    """By their share of layers ``mixed`` times the shared and the routed experts and the router, ``dense`` the MLP."""
    tp, mixture = read(columns, "tp"), experts.share(columns)
    shared = shape.shared_experts * np.asarray(shape.moe_intermediate_size, dtype=np.float64) / tp
    mixture, plain = mixture * mixed, (1 - mixture) * dense
    found = [(plain, _dense_mlp(columns, shape, np.asarray(shape.intermediate_size) / tp, speed))]
    found += [(mixture, _dense_mlp(columns, shape, shared, speed))]
    found += [(mixture, _routed(columns, shape, speed))] if np.any(mixture > 0) else []
    return [Passes(*(part * one for one in both)) for part, several in found for both in several]


def _dense_mlp(columns: Columns, shape: Any, width: Any, speed: _Products) -> list[Passes]:
    if not np.any(width > 0):
        return []
    rows, hidden = local_tokens(columns), np.asarray(shape.hidden_size, dtype=np.float64)
    inner, wide = 1 + np.asarray(shape.gated_mlp) * 1.0, np.maximum(width, 1e-9)
    found = [speed.both(rows, inner * wide, hidden), speed.both(rows, hidden, wide)]
    return [Passes(*(np.where(width > 0, one, 0.0) for one in both)) for both in found]


def _routed(columns: Columns, shape: Any, speed: _Products) -> list[Passes]:
    """The products of a rank's experts, one kernel or each its own; the router's on the rank's own tokens."""
    local, hidden = experts.local_experts(columns), np.asarray(shape.hidden_size, dtype=np.float64)
    rows = experts.padded(experts.routed_tokens(columns) / local)
    inner = 1 + np.asarray(shape.gated_mlp) * 1.0
    split = np.maximum(np.asarray(shape.moe_intermediate_size) / expert_width(columns), 1)
    found = [speed.both(rows, inner * split, hidden, local), speed.both(rows, hidden, split, local)]
    router = local_tokens(columns) * router_parameters(shape) * 2.0 / speed.flops_per_s
    return [*found, Passes(router, router if speed.frozen else 2 * router)]


def output_products(columns: Columns, machine: Machine, *, frozen: bool = False) -> Passes:
    """The output projection, in half precision also where layers compute in fewer bits."""
    shape = shape_columns(columns)
    rate = machine.by_dtype(columns, lambda dtype: machine.matmul_rate(_wide(dtype))) * constants.SLOWEST_GPU.median
    width = np.asarray(shape.vocab_size) / read(columns, "tp")
    hidden = np.asarray(shape.hidden_size, dtype=np.float64)
    return _Products(rate, machine, frozen).both(local_tokens(columns), width, hidden)


def _wide(dtype: str) -> str:
    """The dtype of what is not computed in 8 bits or fewer."""
    return "bf16" if dtype in ("fp8", "fp4") else dtype


def attention(columns: Columns, machine: Machine, profile: MemoryProfile, behaviour: Behaviour) -> Passes:
    """Scores, softmax and weighted sum of one layer: a flash attention kernel, or through memory."""
    shape, sequence = shape_columns(columns), read(columns, "sequence_length")
    pairs = local_tokens(columns) * shape.num_heads / read(columns, "tp") * sequence
    work = pairs * (4.0 * shape.head_dim + 2.0 * shape.rope_head_dim)
    peak = machine.by_dtype(columns, lambda dtype: machine.peak(_wide(dtype)))
    if not profile.flash_attention:
        return _stored_attention(pairs, work, machine, profile)
    blocks = 1.0 if behaviour.context_kind == "gather" else read(columns, "cp")
    block, half = sequence / blocks, _half(machine.architecture, blocks)
    work = work * (1 + _windows(shape, block, half))
    known = _at_length(block, half) * machine.matmul_scale
    shares = _kernel_shares(columns, machine, profile.attention or behaviour.attention)
    forward, backward = (work / 2 / (peak * share * known) for share in shares)
    return Passes(forward, 2.5 * backward)


def _half(architecture: str, blocks: Any) -> Any:
    """Positions at which attention's blocks run at half of their speed at long sequences.

    Of a rank's blocks in a ring the first is causal. The others have no masked pairs: all its queries and half of the
    keys, or half of its queries and all keys, so 1.5 times as many short rows for their work.
    """
    causal, whole = (of[architecture].median for of in (constants.ATTENTION_HALF, constants.WHOLE_HALF))
    return (causal + (blocks - 1) * 1.5 * whole) / blocks


def _at_length(positions: Any, half: Any) -> Any:
    """The share of its speed at long sequences that a kernel reaches."""
    return positions / (positions + half)


def _windows(shape: Any, block: Any, half: Any) -> Any:
    """What layers with a sliding window change of the time of attention: whole tiles are computed, on short rows."""
    seen = np.minimum(shape.window + np.sqrt(constants.TILE.median), block)
    share = window_share(SimpleNamespace(window=seen), block) * _at_length(block, half) / _at_length(seen, half)
    return shape.window_layers / np.asarray(shape.num_layers) * (np.minimum(share, 1.0) - 1.0)


def _kernel_shares(columns: Columns, machine: Machine, usual: str) -> tuple[Any, Any]:
    """Shares of peak FLOP/s, forward and backward, of the usual kernel, or of the one in ``attention_kernel``."""
    names = read(columns, "attention_kernel") if "attention_kernel" in columns else np.asarray(usual)
    found: list[Any] = [np.zeros(names.shape), np.zeros(names.shape)]
    narrow = np.asarray(shape_columns(columns).head_dim) < 96
    for name in words_in(names):
        shares = constants.attention(name, machine.architecture, machine.gpu.name)
        slower = constants.HEAD_64[machine.architecture if name == "cudnn" else "hopper"].median
        known = (np.where(narrow, slower, 1.0) * share.median for share in shares)
        found = [np.where(names == name, share, one) for share, one in zip(known, found, strict=True)]
    return found[0], found[1]


def _stored_attention(pairs: Any, work: Any, machine: Machine, profile: MemoryProfile) -> Passes:
    """Attention that writes its scores: mostly memory traffic; its products run at half the speed of large ones."""
    traffic = [one.median for one in constants.SCORE_BYTES] if profile.dropout else [8.0, 16.0]
    rate = machine.matmul_rate("fp16") * 0.5
    forward, backward = (bytes_ * pairs / machine.memory_bytes_per_s for bytes_ in traffic)
    hidden = [4.0 * pairs / machine.memory_bytes_per_s * passes for passes in (1, 2)]
    return Passes(
        forward + np.maximum(work / rate - hidden[0], 0.0), backward + np.maximum(2 * work / rate - hidden[1], 0.0)
    )


def elementwise(columns: Columns, machine: Machine, profile: MemoryProfile, behaviour: Behaviour) -> Passes:
    """Norms, residual additions, activations, rotary embeddings, casts: bytes over the memory's rate."""
    shape, tp, rows = shape_columns(columns), read(columns, "tp"), local_tokens(columns)
    split = tp if profile.sequence_parallel else 1.0
    whole = np.asarray(shape.hidden_size) / split
    heads = shape.head_dim * (shape.num_heads + 2 * np.asarray(shape.num_kv_heads)) / tp
    mixture = experts.share(columns)
    in_products = mentions(columns, "cuda_graphs", experts.WHOLE) * behaviour.kernel_per_expert  # activations, casts
    used = shape.experts_per_token * (1 - in_products) + shape.shared_experts
    used = used * np.asarray(shape.moe_intermediate_size)
    width = (mixture * used + (1 - mixture) * shape.intermediate_size) / tp
    width = width * np.where(np.asarray(shape.gated_mlp) > 0, 1.0, 0.6)
    fused = read(columns, "compile") > 0

    def moved(norm: Any, inner: float, head: Any, best: tuple[float, float, float]) -> Any:
        eager = norm * whole + inner * width + head * heads
        return np.where(fused, best[0] * whole + best[1] * width + best[2] * heads, eager)

    chained = np.asarray(shape.norm) == "rmsnorm"  # PyTorch's LayerNorm always was one kernel
    rotary = np.asarray(shape.learned_positions) == 0
    norms = [
        np.where(chained, one, np.minimum(one, most)) for one, most in zip(behaviour.norms, (10.0, 16.0), strict=True)
    ]
    turns = [np.where(rotary, one, np.minimum(one, 2.0)) for one in behaviour.heads]
    forward = moved(norms[0], behaviour.widths[0], turns[0], (8.0, 3.0, 2.0))
    backward = moved(norms[1], behaviour.widths[1], turns[1], (13.0, 5.0, 2.0))
    element = element_bytes(columns)
    routed = mixture * experts.routed_elements(columns) / rows
    inputs = np.asarray(shape.hidden_size) * 2.0 + heads + width + routed
    outputs = inputs + np.asarray(shape.gated_mlp) * width
    cast = _casts(columns, machine, behaviour, inputs, outputs)
    scale = rows / machine.memory_bytes_per_s
    slower = machine.memory_share.median / constants.PERMUTATION_SHARE.median
    forward, backward = (
        one + slower * each.median * routed for one, each in zip((forward, backward), constants.ROUTED, strict=True)
    )
    return Passes((element * forward + cast[0]) * scale, (element * backward + cast[1]) * scale)


def _casts(columns: Columns, machine: Machine, behaviour: Behaviour, inputs: Any, outputs: Any) -> tuple[Any, Any]:
    """Bytes per token, forward and backward, to cast the inputs of products and the gradients of their outputs."""
    if behaviour.scales_dynamically:
        small = CAST_BYTES * equals(columns, "dtype", "fp8", "fp4")
        return small * inputs, small * (inputs + 2 * outputs)
    size = _cast_bytes(columns, machine)
    return size * inputs, size * outputs


def _cast_bytes(columns: Columns, machine: Machine) -> Any:
    recipes = read(columns, RECIPE)
    found: Any = 0.0
    place = "blackwell" if machine.architecture == "blackwell" else "hopper"
    for recipe in words_in(recipes):
        known = constants.CASTS.get((recipe, place)) or constants.CASTS.get((FORMATS.get(recipe, recipe), place))
        found = np.where(recipes == recipe, known.median if known else 0.0, found)
    return found


def dropped_s(columns: Columns, machine: Machine, profile: MemoryProfile, behaviour: Behaviour) -> Any:
    """Seconds to make again what "moe_act" (or "moe") and "layernorm" in ``recompute_modules`` drop in one layer: the
    activations of routed experts, which are cast again, and the outputs of both norms.
    """
    act, moe, norms = (mentions(columns, "recompute_modules", name) for name in ("moe_act", "moe", "layernorm"))
    inner = experts.share(columns) * experts.inner_elements(columns)
    clamped = np.asarray(shape_columns(columns).mlp_bias) * experts.CLAMP_BYTES[0]
    each = element_bytes(columns) * behaviour.widths[0] + _cast_bytes(columns, machine) + clamped
    split = read(columns, "tp") if profile.sequence_parallel else 1.0
    outputs = 4 * element_bytes(columns) * local_tokens(columns) * read(columns, "hidden_size") / split
    return (np.maximum(act, moe) * inner * each + norms * outputs) / machine.memory_bytes_per_s


def loss(columns: Columns, machine: Machine, behaviour: Behaviour) -> Any:
    """Seconds of memory traffic of the loss, forward and backward together."""
    fused = read(columns, "compile") > 0
    per_logit = np.where(fused, 16.0, behaviour.logit_traffic)
    logits = local_tokens(columns) * read(columns, "vocab_size") / read(columns, "tp")
    return logits * per_logit / machine.memory_bytes_per_s
