"""Where allocated node time went: every node-second once, by plain arithmetic over journals' events."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sweep.outcomes import Outcome
from sweep.state.events import NodeBad, PilotAlive, PilotEnded, PilotGone, PilotIntended, PilotStarted
from sweep.state.node_time import node_time, total
from sweep.state.parts import PARTS
from tests.support.made_events import recorded, state_of
from tests.support.made_events import started as begun

PHASES = {"device": 0.5, "rendezvous": {"min": 0.5, "median": 1.0, "max": 1.5, "max_rank": 3}, "build": 1.0}
TIMES = {
    "start_s": 4.0, "first_iteration_s": 3.0, "measure_s": 7.0, "step_time_median_s": 1.0,
    "warmup_times_s": (3.0, 1.0, 1.0), "extra_json": json.dumps({"phases_s": PHASES, "allocator": {"a": [1]}}),
}  # fmt: skip


def allocated(nodes=2, begin=0.0, ready=10.0):
    return [
        PilotIntended(time=begin, pilot="p1", token="t", nodes=nodes, time_limit_s=3600),
        PilotStarted(time=ready, pilot="p1", job_id="1", nodes=tuple(names(nodes)), began_at=begin),
    ]


def names(nodes):
    return [f"n{number}" for number in range(nodes)]


def ran(run, start, end, nodes, outcome=Outcome.OK, **facts):
    facts = {"started_at": start, "ended_at": end, **(facts or TIMES)}
    return [begun(run, start, pilot="p1", nodes=nodes), recorded(run, outcome, end + 0.5, pilot="p1", **facts)]


def parts(*groups, now=1000.0):
    flat = (event for group in groups for event in (group if isinstance(group, list) else [group]))
    found = node_time(state_of(*flat), now)["p1"]
    assert set(found) <= set(PARTS)
    return {part: pytest.approx(seconds) for part, seconds in total({"p1": found}).items()}


ENDED = PilotEnded(time=100.0, pilot="p1", reason="done")
"""a pilot of 2 nodes that measured one run on both for 20 s: by part in node-seconds"""


def test_each_part_of_an_attempt_and_of_a_pilot():
    gone = PilotGone(time=105.0, pilot="p1", word="ENDED", ended_at=104.0)
    found = parts(allocated(), ran("a", 30.0, 50.0, names(2)), ENDED, gone)
    assert found == {
        "measuring": 10.0, "warm-up": 6.0, "compilation": 4.0, "model": 2.0, "process groups": 3.0,
        "CUDA context": 1.0, "imports": 2.0, "cleaning": 12.0, "idle": 140.0, "pilot": 28.0,
    }  # fmt: skip
    assert sum(seconds.expected for seconds in found.values()) == pytest.approx(2 * 104)
    damaged = parts(allocated(), ran("a", 30.0, 50.0, names(2), **TIMES | {"extra_json": "{"}), ENDED)
    assert (damaged["imports"], damaged["warm-up"]) == (2 * 4, found["warm-up"]), "phases are not known"
    assert parts(allocated(begin=4.0), ENDED) == {"pilot": 2 * 6, "idle": 2 * 90}
    assert parts(allocated(begin=10.0), ENDED) == {"idle": 2 * 90}


def test_iterations_of_a_stopped_run_and_attempts_that_failed_are_parts_of_their_own():
    stopped = ran("a", 30.0, 50.0, ["n0"], **TIMES, stopped="slow")
    found = parts(allocated(1), stopped, ran("b", 50.0, 60.0, ["n0"], Outcome.HANG), ENDED)
    assert (found["stopped"], found["failed"], "measuring" in found) == (5.0, 10.0, False)


def test_a_free_node_waits_while_its_pilot_runs_on_others_and_else_is_idle():
    found = parts(allocated(3), ran("a", 30.0, 50.0, ["n0"]), ran("b", 40.0, 60.0, ["n1"]), ENDED)
    assert (found["waiting"], found["idle"]) == (2 * 10 + 10 + 2 * 10, 3 * (20 + 40))


def test_what_a_pilot_without_a_word_held_after_its_last_line_is_lost():
    first, alive = begun("a", 20.0, pilot="p1", nodes=("n0",)), PilotAlive(time=40.0, pilot="p1")
    running = parts(allocated(), first, alive, now=70.0)
    assert (running["running"], running["waiting"], running["idle"]) == (50.0, 50.0, 20.0)
    lost = recorded("a", Outcome.LOST, 95.0, pilot="p1", started_at=20.0, ended_at=90.0)
    gone = PilotGone(time=95.0, pilot="p1", word="NODE_FAIL", ended_at=90.0)
    found = parts(allocated(), first, alive, lost, gone)
    assert (found["failed"], found["waiting"], found["lost"]) == (20.0, 20.0, 2 * 50)


def test_a_node_that_failed_never_came_or_cannot_be_cleaned_is_lost_and_no_longer_waits():
    bad = NodeBad(time=40.0, node="n1", reason="not clean", pilot="p1")
    assert parts(allocated(), bad, ENDED)["lost"] == 60.0
    assert parts(allocated(), ran("a", 30.0, 50.0, names(2)), bad, ENDED)["lost"] == 50.0, "a run still had it"
    failed = ran("a", 20.0, 30.0, names(2), Outcome.NODE_FAIL)
    failed[1] = replace(failed[1], accused=("n1",))
    found = parts(allocated(), failed, ENDED)
    assert (found["failed"], found["lost"], found["idle"]) == (20.0, 70.0, 20.0 + 70.0)
    again = ran("b", 50.0, 60.0, ["n1"])
    assert "lost" not in parts(allocated(), failed, again, ENDED), "it ran again"
    late = [allocated(3)[0], allocated(2)[1]]
    assert parts(late, ENDED) == {"idle": 180.0, "pilot": 30.0, "lost": 90.0}


@given(
    runs=st.lists(st.tuples(st.floats(0, 9), st.floats(0, 9), st.integers(1, 3), st.sampled_from(["ok", "hang"]))),
    phases=st.dictionaries(st.sampled_from(["device", "build", "x"]), st.one_of(st.floats(-5, 1e9), st.text())),
    times=st.fixed_dictionaries({
        name: st.one_of(st.none(), st.floats(-5, 50)) for name in TIMES if name.endswith("_s") and "warm" not in name
    }),
    bad=st.lists(st.tuples(st.floats(0, 90), st.sampled_from(names(3))), max_size=3),
    last=st.sampled_from(["ended", "gone", "open"]),
)  # fmt: skip
def test_the_parts_are_never_negative_and_sum_to_what_was_allocated(runs, phases, times, bad, last):
    events, at = [*allocated(3)], 10.0
    for number, (gap, took, width, outcome) in enumerate(runs):
        at, facts = at + gap, {**times, "extra_json": json.dumps({"phases_s": phases})}
        events += ran(f"r{number}", at, at + took, names(width), Outcome(outcome), **facts)
        at += took
    for time, node in bad:  # before the first run: a node is not used after it
        events.append(NodeBad(time=at + time, node=node, reason="not clean", pilot="p1"))
    end = at + 100
    if last != "open":
        gone = PilotGone(time=end, pilot="p1", word="X", ended_at=end)
        events += [*([PilotEnded(time=end - 1, pilot="p1", reason="")] if last == "ended" else []), gone]
    found = node_time(state_of(*events), end)["p1"]
    assert min(found.values()) >= -1e-6
    assert sum(found.values()) == pytest.approx(3 * end)
