"""The diagnosis of an attempt beside the leader's event loop, and within a time: heartbeats and signals go on."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import traceback
from typing import Any

from sweep.diagnose.diagnose import diagnose
from sweep.diagnose.model import Diagnosis
from sweep.outcomes import Outcome
from sweep.pilot.leader.attempt_result import diagnosis_of
from sweep.pilot.leader.attempt_state import AttemptState

DIAGNOSIS_S = 20.0
"""for the output of all ranks of an attempt: that of 1,000 ranks (33 MB) takes 5 s"""
SHORT_DIAGNOSIS_S = 1.0
"""the same once the scheduler ends the job"""
_ADVICE = "Read the ranks' output in the attempt's log: `sweep explain --log FILE` takes the time it needs."


async def diagnosed(state: AttemptState, ending: asyncio.Event) -> Diagnosis:
    """The diagnosis of an attempt whose nodes are cleared; ``unknown`` where it takes longer. ``ending``: of the job.

    Its thread is left alone then: each pattern takes time in proportion to its text, so that the thread ends soon.
    """
    if state.all_measured:  # nothing is read
        return diagnosis_of(state)
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Diagnosis] = loop.create_future()

    def work() -> None:
        try:
            found = diagnosis_of(state)
        except Exception:  # unexpected: fail this attempt, not the pilot
            found = Diagnosis(Outcome.UNKNOWN, "the diagnosis failed: " + traceback.format_exc(limit=-3), _ADVICE)
        with contextlib.suppress(RuntimeError):  # the loop is closed: it is not waited for
            loop.call_soon_threadsafe(done.set_result, found)

    threading.Thread(target=work, name="diagnosis", daemon=True).start()
    ends = asyncio.ensure_future(ending.wait())
    either: set[asyncio.Future[Any]] = {done, ends}
    await asyncio.wait(either, timeout=DIAGNOSIS_S, return_when=asyncio.FIRST_COMPLETED)
    if ends.done() and not done.done():
        await asyncio.wait({done}, timeout=SHORT_DIAGNOSIS_S)
    ends.cancel()
    return done.result() if done.done() else _without_output(state)


def _without_output(state: AttemptState) -> Diagnosis:
    """By the watcher's verdict alone, where there is one."""
    if state.verdict is not None:
        return diagnose((), verdict=state.verdict.outcome, verdict_text=state.verdict.text)
    return Diagnosis(Outcome.UNKNOWN, f"the ranks' output was not diagnosed within {DIAGNOSIS_S:g} s", _ADVICE)
