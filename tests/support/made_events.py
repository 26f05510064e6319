"""Runs of a plan, and events of their attempts, with defaults for what a test does not decide."""

import json

from sweep.contract import Run
from sweep.outcomes import Outcome
from sweep.planning.runs import PlannedRun
from sweep.state.events import AttemptStarted, Recorded, RecordFacts
from sweep.state.state import SweepState
from tests.support.configurations import run


def planned(number, seconds=60.0, *, model="1B", nodes=1, **values):
    """A run with a number for its id. ``values``: of its configuration (``configurations.run``)."""
    return PlannedRun(f"run-{number:016x}", model, nodes, seconds, json.dumps(run(**values) | {"nodes": nodes}))


def planned_as(values, seconds=60.0):
    """A run of this configuration, with the id that it has in a plan."""
    made = Run.from_json(json.dumps(values))
    return PlannedRun(made.run_id, made.model, made.nodes, seconds, made.canonical_json())


def started(run_id, time=0.0, attempt=1, pilot="p0001", nodes=("n1",)):
    return AttemptStarted(time=time, pilot=pilot, run_id=run_id, attempt=attempt, nodes=tuple(nodes))


def recorded(run_id, outcome=Outcome.OK, time=0.0, attempt=1, *, rate=None, accused=(), slow=None, **facts):
    """Written at that time by the pilot, or by a launcher if it is lost. ``slow``: the node of its slowest rank."""
    facts = {"pilot": "p0001", "tokens_per_second_per_gpu": rate, **facts}
    record = RecordFacts(run_id=run_id, attempt=attempt, outcome=Outcome(outcome), **facts)
    by = "" if record.outcome is Outcome.LOST else record.pilot
    return Recorded(time=time, pilot=by, record=record, accused=tuple(accused), slow_node=slow)


def state_of(*events):
    """The state that these make."""
    state = SweepState()
    state.apply_all(events)
    return state
