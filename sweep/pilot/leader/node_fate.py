"""What became of a node whose agent ended, by Slurm's answers. Pure. A closed connection accuses no node."""

from __future__ import annotations

import re
from enum import Enum


class Fate(Enum):
    """The value completes a message."""

    DEAD = "Slurm cannot reach the node"
    RELEASED = "Slurm took the node from the job"
    CANCELLED = "Slurm cancelled the agents' step"
    ALIVE = "the agent ended, the node works"
    UNKNOWN = "the agent ended, Slurm does not say why"


_UNREACHED = re.compile(r"failed on node \S{1,255}: (?:Communication|Socket timed out|Zero Bytes|Message)")
"""srun's words (slurm_strerror) for a node that does not answer. Other reasons, such as a credential's, say nothing"""
_DOWN = re.compile(r"down\S*|\S+\*")
"""a state in sinfo's long form; "*": the node does not answer the controller"""

_CANCELLED = re.compile(r"\*\*\* STEP \S{1,40} ON \S{1,255} CANCELLED AT ")
"""slurmstepd's words (22.05 to 25.11), which srun prints"""


def works(agents_output: str) -> Fate:
    """Of a node that works and whose agent ended. ``agents_output``: its end, with what srun says of their step."""
    return Fate.CANCELLED if _CANCELLED.search(agents_output) else Fate.ALIVE


def fate_of(*, refusal: str, state: str | None, in_job: bool | None) -> Fate:
    """Of a node on which no step started. ``refusal``: srun's message. ``state``: the node's, by sinfo; ``in_job``:
    whether the job still has it, by squeue; None: no answer, or none that can be understood.
    """
    if _UNREACHED.search(refusal) or (state is not None and _DOWN.fullmatch(state)):
        return Fate.DEAD
    return Fate.RELEASED if in_job is False else Fate.UNKNOWN
