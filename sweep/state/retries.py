"""Whether a run may be retried, and where; which record of an attempt counts, and which attempt of a run. Pure.

A failure caused by the configuration recurs on every retry; one caused by a node, the network or the
scheduler is not the run's, and is retried elsewhere a bounded number of times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sweep.outcomes import Outcome

ENDLESS = 1_000_000

RETRIES: Mapping[Outcome, int] = {
    Outcome.OK: 0,
    Outcome.OOM_CUDA: 0,
    Outcome.OOM_HOST: 1,
    Outcome.HANG: 1,
    Outcome.NCCL_TIMEOUT: 1,
    Outcome.NCCL_ERROR: 2,
    Outcome.CUDA_ERROR: 1,
    Outcome.XID_HARDWARE: 2,
    Outcome.NODE_FAIL: 3,
    Outcome.NETWORK: 3,
    Outcome.TIME_LIMIT: 0,
    Outcome.IMPORT_ERROR: 0,
    Outcome.CONFIG_ERROR: 0,
    Outcome.CONFIG_MISMATCH: 0,
    Outcome.PORT_IN_USE: 3,
    Outcome.DISK_FULL: 1,
    Outcome.NAN_LOSS: 0,
    Outcome.PYTHON_EXCEPTION: 0,
    Outcome.PREEMPTED: ENDLESS,
    Outcome.SEGFAULT: 1,
    Outcome.CANCELLED: ENDLESS,
    Outcome.LOST: 3,
    Outcome.UNKNOWN: 1,
}
"""outcome -> number of retries that this outcome allows, in one run"""

ELSEWHERE = frozenset(
    {
        Outcome.HANG,
        Outcome.NCCL_TIMEOUT,
        Outcome.NCCL_ERROR,
        Outcome.CUDA_ERROR,
        Outcome.XID_HARDWARE,
        Outcome.NODE_FAIL,
        Outcome.SEGFAULT,
        Outcome.OOM_HOST,
        Outcome.DISK_FULL,
        Outcome.LOST,
        Outcome.UNKNOWN,
    }
)
"""outcomes that a node may have caused: the next attempt avoids the nodes of this one, where there are others"""

SAME_EVERYWHERE = ELSEWHERE - {Outcome.LOST, Outcome.NODE_FAIL, Outcome.XID_HARDWARE}
"""outcomes that are the configuration's fault once seen on two disjoint sets of nodes. A lost attempt shows nothing of
the run: its pilot ended. A dead node and a hardware error are the nodes', however many have one"""


OUTSIDE = frozenset(
    {
        Outcome.LOST,
        Outcome.UNKNOWN,
        Outcome.PREEMPTED,
        Outcome.NODE_FAIL,
        Outcome.NETWORK,
        Outcome.PORT_IN_USE,
        Outcome.XID_HARDWARE,
    }
)
"""outcomes that are not the fault of a configuration: a person's resume tries such a run at least once more"""


def may_retry(ended: Sequence[Outcome], nodes: Sequence[frozenset[str]] = ()) -> bool:
    """May a run with these outcomes, oldest first, on these nodes, be retried?

    An interruption from outside (preempted, cancelled) never counts against the run.
    """
    last = ended[-1]
    return ended.count(last) <= RETRIES[last] and not config_fault(ended, nodes)


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
