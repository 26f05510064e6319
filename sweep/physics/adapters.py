"""Low-rank adapters in a model whose own weights are frozen (LoRA, Hu et al. 2021, arXiv 2106.09685).

Of the products that a layer has, those with the adapters are a hundredth; but they read and write activations as wide
as the layer's own. The matrix of queries, keys and values has one: as in the paper's sec. 4.2, and in the recipes of
NVIDIA-NeMo/Megatron-Bridge (target_modules linear_qkv in scripts/performance). With ``adapts_output`` the attention's
output matrix has one, too, as in MLPerf's benchmark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sweep.physics.columns import element_bytes, local_tokens, read
from sweep.physics.machine import Machine
from sweep.physics.profiles import MemoryProfile
from sweep.physics.shapes import shape_columns

FORWARD, BACKWARD = (1.0, 6.0), (5.0, 4.0)
"""elements that an adapter reads and writes per element of its matrix's (input, output): the input read once, the
output written, scaled (2) and added (3); in backward the output's gradient scaled (2) and read twice, the input read
for its weight's gradient, its own gradient written and added (3)"""
DROPOUT = 2.5
"""further ones of the input, each way: read, written, and a mask of one byte"""
OPERATIONS = (6.0, 8.0)
"""host operations of an adapter, forward and backward"""


def traffic_s(columns: Mapping[str, Any], machine: Machine, profile: MemoryProfile) -> tuple[Any, Any]:
    """Seconds of a layer's adapter, forward and backward: its memory traffic. 0 without adapters."""
    if not profile.frozen_weights:
        return 0.0, 0.0
    shape = shape_columns(columns)
    hidden, heads = np.asarray(shape.hidden_size), shape.head_dim * np.asarray(shape.num_heads)
    out = (heads + 2 * shape.head_dim * np.asarray(shape.num_kv_heads)) / read(columns, "tp")
    scale = local_tokens(columns) * element_bytes(columns) / machine.memory_bytes_per_s
    sizes = [(hidden, out), (heads / read(columns, "tp"), hidden)][: 1 + profile.adapts_output]
    dropped = DROPOUT * profile.dropout
    found = [sum((each[0] + dropped) * into + each[1] * to for into, to in sizes) for each in (FORWARD, BACKWARD)]
    return scale * found[0], scale * found[1]


def host_operations(profile: MemoryProfile) -> tuple[float, float]:
    """Host operations of a layer's adapter, forward and backward."""
    count = profile.frozen_weights * (1 + profile.adapts_output)
    return OPERATIONS[0] * count, OPERATIONS[1] * count
