"""Every layout of a model on a number of GPUs, as columns, for questions about memory alone."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sweep.contract import DERIVED, FREE, LAYOUT
from sweep.physics.shapes import ModelShape

FIXED = {"dtype": "bf16", "pp_schedule": "1f1b"}
AXES = tuple(name for name in (*FREE, *DERIVED) if name in LAYOUT and name not in FIXED)


def layouts_on(
    shape: ModelShape,
    gpus: int,
    *,
    gpus_per_node: int,
    sequence_length: int,
    global_batch_tokens: int,
    asked: Mapping[str, Sequence[Any]] | None = None,
    stages_beyond_layers: int = 0,
) -> dict[str, Any]:
    """Columns of every layout with ``dp tp pp cp = gpus`` and a batch of at most ``global_batch_tokens``.

    tp divides the heads and stays inside a node, stages are no more than layers (and ``stages_beyond_layers`` of the
    memory profile), a pipeline has pp - 1 micro-batches at least, ep divides the experts and the ranks of a stage.
    ``asked``: axes with the values to try, instead of all useful ones.
    """
    asked = dict(asked or {})
    powers = tuple(2**i for i in range(7))
    choices = {
        "tp": asked.get("tp", [d for d in divisors(gpus) if d <= gpus_per_node]),
        "pp": asked.get("pp", divisors(gpus)),
        "cp": asked.get("cp", [1]),
        "ep": asked.get("ep", divisors(shape.num_experts) if shape.num_experts else [1]),
        "zero": asked.get("zero", [0, 1, 2, 3]),
        "micro_batch_size": asked.get("micro_batch_size", powers),
        "recompute": asked.get("recompute", ["none", "selective", "full"]),
    }
    rows, stages = [], shape.num_layers + stages_beyond_layers
    for tp, pp, cp, ep, zero, micro, recompute in itertools.product(*choices.values()):
        dp, rest = divmod(gpus, tp * pp * cp)
        if rest or shape.num_heads % tp or pp > stages or sequence_length % cp or (zero and dp * cp == 1):
            continue
        if shape.num_experts % ep or dp * cp * tp % ep:
            continue
        grad_accum = global_batch_tokens // (dp * micro * sequence_length)
        if grad_accum >= max(1, pp - 1) and all(
            v in asked.get(n, [v]) for n, v in (("dp", dp), ("grad_accum", grad_accum))
        ):
            rows.append((tp, pp, cp, ep, zero, micro, recompute, dp, grad_accum))
    found = {name: np.array([row[i] for row in rows]) for i, name in enumerate(AXES)}
    return {**shape.as_dict(), "sequence_length": sequence_length, "gpus_per_node": gpus_per_node, **FIXED, **found}


def divisors(number: int) -> tuple[int, ...]:
    """All divisors, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))
