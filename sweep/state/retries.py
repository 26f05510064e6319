"""Whether a run may be retried, and where; which record of an attempt counts, and which attempt of a run. Pure.

A failure caused by the configuration recurs on every retry; one caused by a node, the network or the
scheduler is not the run's, and is retried elsewhere a bounded number of times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sweep.outcomes import Outcome

ENDLESS = 1_000_000


class Rule(NamedTuple):
    """What follows an outcome."""

    retries: int
    """number of retries that this outcome allows, in one run"""
    elsewhere: bool = False
    """a node may have caused it: the next attempt avoids the nodes of this one, where there are others"""
    outside: bool = False
    """not the fault of a configuration: a person's resume tries such a run at least once more"""


RULES: Mapping[Outcome, Rule] = {
    Outcome.OK: Rule(0),
    Outcome.OOM_CUDA: Rule(0),
    Outcome.OOM_HOST: Rule(1, elsewhere=True),
    Outcome.HANG: Rule(1, elsewhere=True),
    Outcome.NCCL_TIMEOUT: Rule(1, elsewhere=True),
    Outcome.NCCL_ERROR: Rule(2, elsewhere=True),
    Outcome.CUDA_ERROR: Rule(1, elsewhere=True),
    Outcome.XID_HARDWARE: Rule(2, elsewhere=True, outside=True),
    Outcome.NODE_FAIL: Rule(3, elsewhere=True, outside=True),
    Outcome.NETWORK: Rule(3, outside=True),
    Outcome.TIME_LIMIT: Rule(0),
    Outcome.IMPORT_ERROR: Rule(0),
    Outcome.CONFIG_ERROR: Rule(0),
    Outcome.CONFIG_MISMATCH: Rule(0),
    Outcome.PORT_IN_USE: Rule(3, outside=True),
    Outcome.DISK_FULL: Rule(1, elsewhere=True),
    Outcome.NAN_LOSS: Rule(0),
    Outcome.PYTHON_EXCEPTION: Rule(0),
    Outcome.PREEMPTED: Rule(ENDLESS, outside=True),
    Outcome.SEGFAULT: Rule(1, elsewhere=True),
    Outcome.CANCELLED: Rule(ENDLESS),
    Outcome.LOST: Rule(3, elsewhere=True, outside=True),
    Outcome.UNKNOWN: Rule(1, elsewhere=True, outside=True),
}
ELSEWHERE = frozenset(outcome for outcome, rule in RULES.items() if rule.elsewhere)
OUTSIDE = frozenset(outcome for outcome, rule in RULES.items() if rule.outside)
SAME_EVERYWHERE = ELSEWHERE - {Outcome.LOST, Outcome.NODE_FAIL, Outcome.XID_HARDWARE}
"""outcomes that are the configuration's fault once seen on two disjoint sets of nodes. A lost attempt shows nothing of
the run: its pilot ended. A dead node and a hardware error are the nodes', however many have one"""


def may_retry(ended: Sequence[Outcome], nodes: Sequence[frozenset[str]] = ()) -> bool:
    """May a run with these outcomes, oldest first, on these nodes, be retried?

    An interruption from outside (preempted, cancelled) never counts against the run.
    """
    last = ended[-1]
    return ended.count(last) <= RULES[last].retries and not config_fault(ended, nodes)


def config_fault(ended: Sequence[Outcome], nodes: Sequence[frozenset[str]]) -> bool:
    """Did the run fail the same way on two disjoint sets of nodes? Then no node is at fault."""
    if not ended or not nodes or ended[-1] not in SAME_EVERYWHERE:
        return False
    last = nodes[-1]
    return any(
        outcome is ended[-1] and before and last and not before & last
        for outcome, before in zip(ended[:-1], nodes[:-1], strict=True)
    )


def supersedes(new: Outcome, known: Outcome | None) -> bool:
    """Does a further record of an attempt replace the known one?

    ``lost`` is inferred by the launcher for a pilot that is gone: the pilot's own record replaces it, however late.
    """
    return known is None or new is not Outcome.LOST


def attempt_that_counts(attempts: Iterable[tuple[int, Outcome | None]], rerun_after: int) -> int | None:
    """The number of the attempt that is the run's result; None where there is none.

    The first that is ok; where a rerun was requested, the first ok one after it, once there is one. Without any ok one
    the last. ``attempts``: number and outcome of each. ``rerun_after``: how many had started when it was requested.
    """
    ordered = sorted(attempts)
    ok = [number for number, outcome in ordered if outcome is Outcome.OK]
    since_rerun = [number for number in ok if number > rerun_after]
    numbers = since_rerun or ok or [number for number, _ in ordered[-1:]]
    return numbers[0] if numbers else None
