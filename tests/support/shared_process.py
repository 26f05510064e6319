"""What the ranks of one process do in tests: rank 1 as set by `ACT` in the environment. A fork server imports it."""

import os
import signal
import sys
import threading
import time

from sweep.contract import Phase, Progress, RankRun


def act(run: RankRun, progress: Progress) -> None:
    """Rank 1 injects the fault; the others wait for it, or end normally without one."""
    progress.heartbeat(Phase.START, due_s=float(run.place.rank))
    wanted = os.environ["ACT"]
    if run.place.rank == 1:
        _do(wanted)
    elif wanted:
        time.sleep(600)
    print(f"rank {run.place.rank} of {run.place.ranks_in_process} in {threading.current_thread().name}\n", end="")


def _do(wanted: str) -> None:
    if wanted == "raise":
        raise KeyError("missing")
    if wanted == "exit":
        sys.exit(7)
    if wanted == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if wanted:
        time.sleep(600)
