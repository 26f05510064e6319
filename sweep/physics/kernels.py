"""Seconds of one layer's kernels for one micro-batch on one rank, by kind: matrix products, attention, memory traffic.

Each is a pair (forward, backward) of numbers or arrays over candidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from sweep.physics import constants
from sweep.physics.columns import element_bytes, equals, local_tokens, read
from sweep.physics.machine import Machine
from sweep.physics.profiles import MemoryProfile
from sweep.physics.shapes import router_parameters, shape_columns
from sweep.physics.trainers import Behaviour

Columns = Mapping[str, Any]


class Passes(NamedTuple):
    """Seconds of a forward and of its backward."""

    forward: Any
    backward: Any


def product_s(rows: Any, width: Any, depth: Any, flops_per_s: Any, machine: Machine, groups: Any = 1.0) -> Any:
    """Seconds of ``groups`` products of rows x depth with depth x width.

    Half a wave of thread blocks is idle on average, and a block first fills its pipeline; no product is faster than the
    memory that it reads and writes (roofline).
    """
    idle = 0.5 * machine.multiprocessors * constants.TILE.median / (rows * width * groups)
    compute = 2.0 * rows * width * depth * groups / flops_per_s * (1 + idle) * (1 + constants.DEPTH.median / depth)
    moved = 2.0 * groups * (rows * depth + depth * width + rows * width)
    return np.maximum(compute, moved / machine.memory_bytes_per_s)


def products(columns: Columns, machine: Machine) -> Passes:
    """The matrices of one layer: query, key and value; output; the MLP's, or those of experts."""
    shape, tp, rows = shape_columns(columns), read(columns, "tp"), local_tokens(columns)
    rate = machine.matmul_flops(columns) * constants.SLOWEST_GPU.median
    hidden = np.asarray(shape.hidden_size, dtype=np.float64)
    heads, kv = shape.num_heads * shape.head_dim / tp, np.maximum(shape.num_kv_heads / tp, 1) * shape.head_dim
    found = [_both(rows, heads + 2 * kv, hidden, rate, machine), _both(rows, hidden, heads, rate, machine)]
    found += _mlp(columns, shape, rate, machine)
    return Passes(sum(one.forward for one in found), sum(one.backward for one in found))


def _mlp(columns: Columns, shape: Any, rate: Any, machine: Machine) -> list[Passes]:
    tp, rows = read(columns, "tp"), local_tokens(columns)
    experts = np.asarray(shape.num_experts, dtype=np.float64)
    mixture = experts > 0
    shared = (
        np.where(mixture, shape.shared_experts * np.asarray(shape.moe_intermediate_size), shape.intermediate_size) / tp
    )
    width = np.maximum(shared, 1e-9)
    hidden, inner = np.asarray(shape.hidden_size, dtype=np.float64), 1 + np.asarray(shape.gated_mlp) * 1.0
    found = []
    if shared.any():
        some = [_both(rows, inner * width, hidden, rate, machine), _both(rows, hidden, width, rate, machine)]
        found += [Passes(*(np.where(shared > 0, one, 0.0) for one in both)) for both in some]
    if mixture.any():
        local = np.maximum(experts / read(columns, "ep"), 1)
        each = rows * np.maximum(shape.experts_per_token, 1) / local
        split = np.maximum(
            np.asarray(shape.moe_intermediate_size) / (read(columns, "etp") if "etp" in columns else tp), 1
        )
        some = [
            _both(each, inner * split, hidden, rate, machine, local),
            _both(each, hidden, split, rate, machine, local),
        ]
        some.append(Passes(*(rows * router_parameters(shape) * passes * 2.0 / rate for passes in (1, 2))))
        found += [Passes(*(np.where(mixture, one, 0.0) for one in both)) for both in some]
    return found


def _both(rows: Any, width: Any, depth: Any, rate: Any, machine: Machine, groups: Any = 1.0) -> Passes:
    """A product, and those of its backward: gradients of its input and of its weight."""
    to_input = product_s(rows, depth, width, rate, machine, groups)
    to_weight = product_s(depth, width, rows, rate, machine, groups)
    return Passes(product_s(rows, width, depth, rate, machine, groups), to_input + to_weight)


def output_products(columns: Columns, machine: Machine) -> Passes:
    """The output projection, in half precision also where layers compute in fewer bits."""
    shape, rows = shape_columns(columns), local_tokens(columns)
    rate = machine.by_dtype(columns, lambda dtype: machine.matmul_rate(_wide(dtype)))
    width = np.asarray(shape.vocab_size) / read(columns, "tp")
    return _both(
        rows, width, np.asarray(shape.hidden_size, dtype=np.float64), rate * constants.SLOWEST_GPU.median, machine
    )


def _wide(dtype: str) -> str:
    """The dtype of what is not computed in 8 bits or fewer."""
    return "bf16" if dtype in ("fp8", "fp4") else dtype


def attention(columns: Columns, machine: Machine, profile: MemoryProfile, behaviour: Behaviour) -> Passes:
    """Scores, softmax and weighted sum of one layer: a flash attention kernel, or through memory."""
    shape, sequence = shape_columns(columns), read(columns, "sequence_length")
    pairs = local_tokens(columns) * shape.num_heads / read(columns, "tp") * sequence
    work = 4.0 * pairs * shape.head_dim
    peak = machine.by_dtype(columns, lambda dtype: machine.peak(_wide(dtype)))
    if not profile.flash_attention:
        return _stored_attention(pairs, work, machine, profile)
    architecture = machine.architecture
    kernel = behaviour.attention if (behaviour.attention, architecture) in constants.ATTENTION else "flash-2"
    shares = constants.ATTENTION[kernel, architecture]
    known = (
        sequence
        / (sequence + constants.ATTENTION_HALF.median)
        * np.where(np.asarray(shape.head_dim) < 96, constants.HEAD_64.median, 1.0)
    )
    measured = machine.matmul_scale
    forward, backward = (work / 2 / (peak * share.median * known * measured) for share in shares)
    return Passes(forward, 2.5 * backward)


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
    mixture = np.asarray(shape.num_experts) > 0
    used = (shape.experts_per_token + shape.shared_experts) * np.asarray(shape.moe_intermediate_size)
    width = np.where(mixture, used, shape.intermediate_size) / tp * np.where(np.asarray(shape.gated_mlp) > 0, 1.0, 0.6)
    whole = whole * (1 + np.where(mixture, 0.5 * np.asarray(shape.experts_per_token), 0.0))
    fused = read(columns, "compile") > 0 if "compile" in columns else np.asarray(False)

    def moved(norm: Any, inner: float, head: Any, best: tuple[float, float, float]) -> Any:
        eager = norm * whole + inner * width + head * heads
        return np.where(fused, best[0] * whole + best[1] * width + best[2] * heads, eager)

    chained = np.asarray(shape.norm) == "rmsnorm"  # PyTorch's LayerNorm always was one kernel
    rotary = np.asarray(shape.learned_positions) == 0
    norms = [
        np.where(chained, one, np.minimum(one, most))
        for one, most in ((behaviour.norm_forward, 10.0), (behaviour.norm_backward, 16.0))
    ]
    turns = [np.where(rotary, one, np.minimum(one, 2.0)) for one in (behaviour.head_forward, behaviour.head_backward)]
    forward = moved(norms[0], behaviour.width_forward, turns[0], (8.0, 3.0, 2.0))
    backward = moved(norms[1], behaviour.width_backward, turns[1], (13.0, 5.0, 2.0))
    element = element_bytes(columns)
    small = equals(columns, "dtype", "fp8", "fp4")
    cast = np.where(small, np.asarray(shape.hidden_size) * 2 + heads + width, 0.0)
    scale = rows / machine.memory_bytes_per_s
    return Passes((element * forward + 3.0 * cast) * scale, (element * backward + 5.0 * cast) * scale)


def loss(columns: Columns, machine: Machine, behaviour: Behaviour) -> Any:
    """Seconds of memory traffic of the loss, forward and backward together."""
    fused = read(columns, "compile") > 0 if "compile" in columns else np.asarray(False)
    per_logit = np.where(fused, 16.0, behaviour.logit_traffic)
    logits = local_tokens(columns) * read(columns, "vocab_size") / read(columns, "tp")
    return logits * per_logit / machine.memory_bytes_per_s
