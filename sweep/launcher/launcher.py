"""A launcher: the lease's holder, what it knows of the sweep from all journals, and its own journal."""

from __future__ import annotations

import os
import platform
import time

from sweep.executors.executor import Executor
from sweep.plugins import EXECUTOR
from sweep.search.search import claimable
from sweep.state.events import Event, SessionAlive, SessionBegan, SessionEnded, TriesRenewed
from sweep.state.retries import OUTSIDE
from sweep.state.state import Attempt, PilotState
from sweep.store.journal import Journal
from sweep.store.lease import ALIVE_S, take
from sweep.store.sweep import Sweep

Width = tuple[str, int]
"""of pilots: their node group, and how many of its nodes"""


class Launcher:
    """Holds the lease of a sweep, from its first journal line to its last: ``sweep.launcher.loop`` makes it act."""

    def __init__(self, sweep: Sweep, *, takeover: bool = False, executor: Executor | None = None) -> None:
        """Take the lease. ``executor``: by default the one that the sweep was started with.

        Raises SweepError where a living launcher holds it, unless ``takeover``.
        """
        self.lease = lease = take(sweep.directory, takeover=takeover)
        self.sweep = sweep
        self.directory = sweep.directory
        self.executor: Executor = executor or EXECUTOR.find(sweep.executor)(sweep.site, sweep.directory.path)
        self.local = sweep.executor == "local"
        self.same_nodes: set[Width] = set()
        """those for which the cluster has only nodes that failed"""
        self.heartbeat_at = 0.0
        """monotonic seconds of the journal's last line"""
        self._journal = Journal(self.directory.journal(lease.writer))
        try:
            self.write(SessionBegan(time=time.time(), epoch=lease.epoch, host=platform.node(), pid=os.getpid()))
        except OSError:
            self._journal.remove_empty()
            raise

    def write(self, event: Event) -> None:
        """Append to the journal, as the answer to all that was read, and read what others have written."""
        self._journal.append(event.answering(self.sweep.sweep_state.latest))
        self.heartbeat_at = time.monotonic()
        self.refresh()

    def show_alive(self) -> None:
        """Write a heartbeat where one is due: before each wait for the scheduler too, so that no other one takes over.

        Its journal is checked each time. Raises LeaseLostError.
        """
        self._journal.check()
        if time.monotonic() - self.heartbeat_at > ALIVE_S:
            self.lease.check()
            self.write(SessionAlive(time=time.time()))

    def renew_tries(self) -> None:
        """A person goes on with the sweep: earlier failures that were not the runs' own no longer count."""
        runs = self.sweep.sweep_state.runs.items()
        last = {run_id: run.last for run_id, run in runs if run.ok is None}
        failed = {run_id: one.number for run_id, one in last.items() if one and one.outcome in (None, *OUTSIDE)}
        if failed:
            self.write(TriesRenewed(time=time.time(), after=failed))

    def refresh(self, *, resting: bool = False) -> None:
        """Read new events of all journals, and store a snapshot where one is due: for all readers."""
        self.sweep.refresh(resting=resting)
        self.sweep.store_if_due()

    def close(self) -> None:
        """Write the last line, which frees the lease."""
        self.write(SessionEnded(time=time.time()))
        if self.sweep.large:
            self.sweep.store()
        self._journal.close()

    # --- derived from the state

    @property
    def open_pilots(self) -> list[PilotState]:
        """Pilots that were requested and are not known to be gone."""
        return [pilot for pilot in self.sweep.sweep_state.pilots.values() if pilot.open]

    @property
    def done(self) -> bool:
        """Nothing waits (or may begin) and no pilot is open."""
        return not self.open_pilots and self.idle

    @property
    def idle(self) -> bool:
        """Nothing runs, and nothing waits (or may begin): a pilot in the queue would find nothing to measure."""
        sweep_state = self.sweep.sweep_state
        if any(pilot.started_at is not None for pilot in self.open_pilots):
            return False
        return sweep_state.cancelled or not any(claimable(self.sweep.asked_for(), sweep_state))

    @property
    def unrecorded(self) -> list[tuple[tuple[str, int], Attempt]]:
        """Attempts that started and have no record: ((run_id, number), attempt)."""
        return [
            ((run_id, number), attempt)
            for run_id, state in self.sweep.sweep_state.runs.items()
            for number, attempt in state.attempts.items()
            if attempt.outcome is None
        ]


def is_own(sweep: Sweep, pilot: PilotState) -> bool:
    """Whether it is this sweep's pilot, and not the original's of which this was a copy."""
    return not sweep.copy_of or pilot.token in ("", token_of(sweep.sweep_id, pilot.name))


def token_of(sweep_id: str, pilot: str) -> str:
    """A pilot's token, its job's name: unique over all sweeps of the user."""
    return f"{sweep_id}-{pilot}"
