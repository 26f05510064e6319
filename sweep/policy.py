"""Whether a run may be attempted again. Pure, and a table.

A failure that the configuration causes comes again however often it is tried; one that a node, the network or the
scheduler causes does not belong to the run, and is tried elsewhere a bounded number of times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
"""outcome -> how many further attempts the attempts that ended so may have, in one run"""


def may_retry(ended: Sequence[Outcome]) -> bool:
    """May a run whose attempts ended so, oldest first, be attempted again?

    An interruption from outside (preempted, cancelled) never counts against the run.
    """
    last = ended[-1]
    return ended.count(last) <= RETRIES[last]
