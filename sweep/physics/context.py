"""Context parallelism in one layer: keys and values passed round a ring or gathered, and partial outputs merged.

Each rank has the first and the last of 2 cp pieces of a sequence, so that all have as many pairs under a causal mask.
A forward computes cp blocks, one per rank's keys and values, and merges their outputs; a backward adds up gradients.
Sources: NVIDIA/TransformerEngine, AttnFuncWithCPAndKVP2P in attention/dot_product_attention/context_parallel.py;
torch/distributed/tensor/experimental/_attention.py; Liu et al. 2023 (arXiv 2310.01889).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sweep.physics import communication
from sweep.physics.columns import element_bytes, local_tokens, read
from sweep.physics.kernels import Passes
from sweep.physics.machine import Machine
from sweep.physics.shapes import shape_columns
from sweep.physics.trainers import Behaviour

Columns = Mapping[str, Any]


def keys_and_values_bytes(columns: Columns, behaviour: Behaviour) -> Any:
    """Bytes of a rank's own keys and values."""
    shape, tp = shape_columns(columns), read(columns, "tp")
    heads = np.asarray(shape.num_kv_heads) / np.minimum(tp, shape.num_kv_heads)
    if behaviour.context_repeats_keys:
        heads = np.asarray(shape.num_heads) / tp
    return 2 * element_bytes(columns) * heads * shape.head_dim * local_tokens(columns)


def exposed_s(columns: Columns, machine: Machine, behaviour: Behaviour, attention: Passes) -> Passes:
    """Seconds that a layer's attention waits for keys, values and their gradients.

    What is passed round the ring is hidden by the block that is computed meanwhile, and slows it down; what is gathered
    at once is hidden by the first block only. The last gradients are hidden by nothing.
    """
    cp = np.maximum(read(columns, "cp"), 1)
    own, ratio = keys_and_values_bytes(columns, behaviour), behaviour.context_gradient_ratio
    step = communication.ring_step_s(columns, own, "cp", machine)
    block = Passes(attention.forward / cp, attention.backward / cp)
    nodes = communication.axis_nodes(columns, "cp")
    gathered = communication.collective_s(columns, own * cp, cp, nodes, machine, axis="cp")
    if behaviour.context_kind == "gather":
        forward, backward = gathered, gathered
    elif behaviour.context_kind == "gather first":
        forward = communication.waited_s(gathered, block.forward)
        backward = (
            communication.waited_s(gathered, block.backward)
            + (cp - 1) * communication.waited_s(step * ratio, block.backward)
            + step * ratio
        )
    else:
        forward = (cp - 1) * communication.waited_s(step, block.forward)
        backward = (cp - 1) * communication.waited_s(step * (1 + ratio), block.backward) + step * ratio
    return Passes(*(np.where(cp > 1, one, 0.0) for one in (forward, backward)))


def merging_s(columns: Columns, machine: Machine, behaviour: Behaviour) -> Passes:
    """Seconds of memory traffic of merging blocks: outputs in forward, gradients in backward."""
    shape, cp = shape_columns(columns), read(columns, "cp")
    elements = local_tokens(columns) * shape.num_heads * shape.head_dim / read(columns, "tp")
    scale = np.where(cp > 1, elements * cp, 0.0) / machine.memory_bytes_per_s
    return Passes(*(bytes_ * scale for bytes_ in behaviour.context_merge_bytes))
