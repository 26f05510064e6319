"""Every layout of a model on a number of GPUs, as columns, for questions about memory alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sweep.contract import DERIVED, FREE, LAYOUT
from sweep.physics.shapes import ModelShape

FIXED = {"dtype": "bf16", "pp_schedule": "1f1b"}
AXES = tuple(name for name in (*FREE, *DERIVED) if name in LAYOUT and name not in FIXED)
_NEEDED = (
    "tp*pp*cp that divides the {gpus} GPUs",
    "tp that divides the {heads} heads",
    "pp of at most {stages} stages, one per layer",
    "cp that divides the {sequence} tokens of a sequence",
    "ep that divides the {experts} experts and the ranks of a stage",
    "a ZeRO stage that the width of data parallelism allows",
    "dp and grad_accum as asked for",
    "a batch of at least {least:,} tokens",
)
"""what every layout needs, in the order in which it is checked"""


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
    tried = _tried(shape, gpus, gpus_per_node, sequence_length, global_batch_tokens, asked, stages_beyond_layers)
    rows = [row for row, lacks, _ in tried if lacks is None]
    found = {name: np.array([row[i] for row in rows]) for i, name in enumerate(AXES)}
    return {**shape.as_dict(), "sequence_length": sequence_length, "gpus_per_node": gpus_per_node, **FIXED, **found}


def what_is_missing(
    shape: ModelShape,
    gpus: int,
    *,
    gpus_per_node: int,
    sequence_length: int,
    global_batch_tokens: int,
    asked: Mapping[str, Sequence[Any]] | None = None,
    stages_beyond_layers: int = 0,
) -> str:
    """What a layout would need that ``layouts_on`` finds none without: of the nearest ones, the first."""
    tried = _tried(shape, gpus, gpus_per_node, sequence_length, global_batch_tokens, asked, stages_beyond_layers)
    lacking = [(lacks, least) for _, lacks, least in tried if lacks is not None]
    last = max((lacks for lacks, _ in lacking), default=0)
    values = {"gpus": gpus, "heads": shape.num_heads, "experts": shape.num_experts, "sequence": sequence_length}
    values["stages"] = shape.num_layers + stages_beyond_layers
    return _NEEDED[last].format(**values, least=min((least for lacks, least in lacking if lacks == last), default=0))


def _tried(
    shape: ModelShape,
    gpus: int,
    gpus_per_node: int,
    sequence_length: int,
    global_batch_tokens: int,
    given: Mapping[str, Sequence[Any]] | None,
    stages_beyond_layers: int,
) -> Iterator[tuple[tuple[Any, ...], int | None, int]]:
    """(values of AXES, which of ``_NEEDED`` it lacks, the smallest batch in tokens) of every combination."""
    asked = dict(given or {})
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
    stages = shape.num_layers + stages_beyond_layers
    for tp, pp, cp, ep, zero, micro, recompute in itertools.product(*choices.values()):
        dp, rest = divmod(gpus, tp * pp * cp)
        sequences = max(1, dp * micro)
        grad_accum = global_batch_tokens // (sequences * sequence_length)
        lacks = (
            rest or dp == 0,
            shape.num_heads % tp,
            pp > stages,
            sequence_length % cp,
            shape.num_experts % ep or dp * cp * tp % ep,
            zero and dp * cp == 1,
            dp not in asked.get("dp", [dp]) or (grad_accum and grad_accum not in asked.get("grad_accum", [grad_accum])),
            grad_accum < max(1, pp - 1),
        )
        row = (tp, pp, cp, ep, zero, micro, recompute, dp, grad_accum)
        first = next((place for place, lacking in enumerate(lacks) if lacking), None)
        yield row, first, sequences * max(1, pp - 1) * sequence_length


def divisors(number: int) -> tuple[int, ...]:
    """All divisors, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))
