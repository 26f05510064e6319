"""Pipeline schedules by name. Free of numpy: a workload's declaration names them."""

from __future__ import annotations

from typing import Any

LOOPED = ("interleaved_1f1b", "looped_bfs", "interleaved_zero_bubble")
"""several stages per rank (``virtual_stages``), in loops over the ranks"""
V_SCHEDULES = ("zbv_zero_bubble", "dualpipev")
"""two stages per rank, the second in reverse order: rank 0 has the first and the last"""
SCHEDULES = ("gpipe", "1f1b", *LOOPED, *V_SCHEDULES)
"""every schedule that the formulas know"""


def looped_stages(virtual_stages: Any) -> Any:
    """Of a looped schedule, a number or a column: 1 is the trainers' own number, 2."""
    return virtual_stages + (virtual_stages == 1)
