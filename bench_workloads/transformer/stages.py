"""Which layers a pipeline stage holds, and which stages a rank holds. Pure arithmetic."""

from __future__ import annotations

from sweep.contract import Layout
from sweep.physics.schedules import LOOPED, V_SCHEDULES, looped_stages

ZERO_BUBBLE = ("interleaved_zero_bubble", *V_SCHEDULES)
"""schedules that split the backward into input and weight parts"""


def stages_of_rank(rank: int, pp: int, schedule: str, virtual_stages: int) -> list[int]:
    """Stage numbers of one rank of the pipeline, in rising order.

    >>> stages_of_rank(0, 2, "zbv_zero_bubble", 2), stages_of_rank(0, 2, "interleaved_1f1b", 2)
    ([0, 3], [0, 2])
    """
    if schedule in V_SCHEDULES:
        return [rank, 2 * pp - 1 - rank]
    return [rank + loop * pp for loop in range(looped_stages(virtual_stages) if schedule in LOOPED else 1)]


def loss_chunk(layout: Layout, most_tokens: int, positions: int) -> int:
    """Tokens of one chunk of the loss; 0: the loss is computed whole.

    ``positions``: of a sequence, on a rank. Chunks hold the gradients of the output projection from a micro-batch's
    forward to its backward, which must follow at once; they know no split vocabulary.

    >>> from sweep.contract import Layout
    >>> loss_chunk(Layout(micro_batch_size=2), 2048, 4096), loss_chunk(Layout(tp=2), 2048, 4096)
    (2048, 0)
    """
    follows = layout.pp == 1 or layout.pp_schedule in ("1f1b", "interleaved_1f1b")
    chunked = layout.tp == 1 and follows and 0 < most_tokens < layout.micro_batch_size * positions
    return most_tokens if chunked else 0


def layers_of_stages(num_layers: int, stages: int, last: float = 0.0) -> list[range]:
    """Contiguous layers for each stage, so that the load of the heaviest stage is minimal.

    ``last``: cost of the output projection, in layers. Each stage gets a layer at least.

    >>> [len(r) for r in layers_of_stages(8, 4, last=2.0)]
    [3, 2, 2, 1]
    """
    if stages > num_layers:
        raise ValueError(f"{stages} pipeline stages need as many layers at least, not {num_layers}")
    load = [1.0 + last * (s == stages - 1) for s in range(stages)]
    counts = [1] * stages
    for _ in range(num_layers - stages):
        lightest = min(range(stages), key=lambda s: (load[s], s))
        counts[lightest] += 1
        load[lightest] += 1.0
    starts = [sum(counts[:s]) for s in range(stages)]
    return [range(start, start + count) for start, count in zip(starts, counts, strict=True)]
