"""The leader goes on while an attempt is diagnosed, and gives up what takes too long."""

import asyncio
import os
import signal
import threading

import pytest

from sweep.outcomes import Outcome
from sweep.pilot.leader import attempt
from sweep.pilot.leader.attempt_state import AttemptState
from sweep.pilot.leader.watchdog import StopReason
from sweep.state.events import PilotEnded
from tests.support import driving
from tests.support.paths import REPOSITORY
from tests.support.pilot_parts import LIMITS, a_run

HOSTILE = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate " + "1" * 1950 + "\n"
FAULTS = driving.simulated(
    {"max_pilots": 1}, global_batch=1024, micro_batch_size=2, params={"step_s": 0.02, "fault": ["oom_cuda", ""]}
)
ENDLESS = """
from sweep.diagnose import rules
from sweep.diagnose.model import LineRule, Weight
from sweep.outcomes import Outcome

class Endless:
    def search(self, text):
        open({marks!r}, "a").close()
        while True:
            pass

rule = LineRule("endless", Outcome.UNKNOWN, Weight.SIGN, "out of memory", advice="")
vars(rule)["pattern"] = Endless()
rules.RULES = (rule, *rules.RULES)

from sweep.pilot import timeouts
from sweep.pilot.leader import attempt

timeouts.HEARTBEAT_S, timeouts.QUIET_S, timeouts.SILENCE_S = 0.5, 1.2, 4.0
attempt.DIAGNOSIS_S = {within_s}
"""
"""sitecustomize: a rule that never ends, agents that soon give up an unresponsive leader"""


def state_of(existing, log_tail, verdict=None):
    """An attempt whose two ranks failed with this output."""
    state = AttemptState("r.1", a_run(existing), ["n1"], LIMITS, 0.0)
    state.verdict = verdict
    for rank in state.ranks:
        rank.exited, rank.exit_code, rank.log_tail = True, 1, log_tail
    return state


def diagnosis(state, ends_after_s=None):
    """The diagnosis, and how often the loop came to something else meanwhile."""

    async def scenario():
        ending, turns = asyncio.Event(), 0

        async def other():
            nonlocal turns
            while True:
                await asyncio.sleep(0.01)
                turns += 1

        others = asyncio.ensure_future(other())
        if ends_after_s is not None:
            asyncio.get_running_loop().call_later(ends_after_s, ending.set)
        found = await attempt.diagnosed(state, ending)
        others.cancel()
        return found, turns

    return asyncio.run(scenario())


def test_what_is_diagnosed_in_time_is_the_diagnosis(existing):
    found, _ = diagnosis(state_of(existing, HOSTILE * 20))
    assert found.outcome is Outcome.OOM_CUDA


def test_output_that_takes_too_long_is_of_an_unknown_outcome_and_the_leader_goes_on(existing, monkeypatch):
    monkeypatch.setattr(attempt, "DIAGNOSIS_S", 0.2)
    huge = "".join(f"rank {number} waits for a peer that is not there\n" for number in range(150_000))
    found, turns = diagnosis(state_of(existing, huge))
    assert (found.outcome, found.evidence) == (Outcome.UNKNOWN, "the ranks' output was not diagnosed within 0.2 s")
    assert "diagnosis" in {thread.name for thread in threading.enumerate()}, "it was not awaited"
    assert turns >= 1
    hung = diagnosis(state_of(existing, huge, StopReason(Outcome.HANG, "no progress")))[0]
    assert (hung.outcome, hung.evidence) == (Outcome.HANG, "no progress"), "what the watcher knows counts"


def test_the_end_of_the_job_ends_the_diagnosis(existing, monkeypatch):
    monkeypatch.setattr(attempt, "SHORT_DIAGNOSIS_S", 0.1)
    huge = "".join(f"rank {number} waits for a peer that is not there\n" for number in range(150_000))
    assert diagnosis(state_of(existing, huge), ends_after_s=0.1)[0].outcome is Outcome.UNKNOWN


def test_a_diagnosis_that_fails_is_no_failure_of_the_pilot(existing):
    found, _ = diagnosis(state_of(existing, None))
    assert found.outcome is Outcome.UNKNOWN
    assert found.evidence.startswith("the diagnosis failed: ")


@pytest.mark.long
def test_heartbeats_and_sigterm_are_handled_while_a_rule_never_ends(tmp_path):
    """The first attempt is given up in time, with heartbeats to the agent meanwhile; SIGTERM ends the second."""
    marks = tmp_path / "marks"
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(ENDLESS.format(marks=str(marks), within_s=8.0))
    # Fork servers run it too, and do not fork beside the threads that numpy, which a leader imports, starts.
    env = {"PYTHONPATH": f"{folder}:{REPOSITORY}", "OPENBLAS_NUM_THREADS": "1"}
    launcher = driving.launching(tmp_path, FAULTS, env=env)
    directory = tmp_path / "s"
    driving.wait_for(marks.exists)
    marks.unlink()
    driving.wait_for(lambda: any(record["outcome"] != "ok" for record in driving.records_of(directory)))
    unknown = next(record for record in driving.records_of(directory) if record["outcome"] != "ok")
    assert (unknown["outcome"], unknown["message"]) == (
        "unknown", "the ranks' output was not diagnosed within 8 s"
    )  # fmt: skip
    driving.wait_for(marks.exists)
    for pid in driving.leader_pids(directory):
        os.kill(pid, signal.SIGTERM)
    driving.wait_for(lambda: driving.events_of(directory, PilotEnded))
    assert driving.events_of(directory, PilotEnded)[0].reason == "received SIGTERM"
    assert launcher.wait(300) in (0, 1)
