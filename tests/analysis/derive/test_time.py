"""What allocated nodes did: no gap, no overlap, and the sum is what was allocated."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.derive.time import held, segments
from sweep.records.timeline import ATTEMPTS, PILOTS


def allocation(pilot="p1", node="n1", begin=0.0, end=100.0, **changes):
    names = {column.name: None for column in PILOTS} | {"source": "s", "time_limit_s": 600.0}
    return names | {"pilot": pilot, "node": node, "allocated_at": begin, "ended_at": end, "heard_at": end} | changes


def attempt(begin, *, nodes=("n1",), start=2.0, measure=5.0, clear=1.0, outcome="ok", pilot="p1", **changes):
    names = {column.name: None for column in ATTEMPTS} | {"source": "s", "run_id": f"r{begin}", "attempt": 1}
    steady = begin + start
    at = {"started_at": begin, "first_at": steady - 1, "steady_at": steady, "measured_at": steady + measure}
    outcome_columns = {
        "pilot": pilot,
        "node_names": list(nodes),
        "outcome": outcome,
        "ended_at": steady + measure + clear,
    }
    return names | at | outcome_columns | changes


def frames(allocations, attempts):
    numbers = [c.name for c in PILOTS if c.type == "double"]
    left = pd.DataFrame(allocations).astype(dict.fromkeys(numbers, float))
    numbers = [c.name for c in ATTEMPTS if c.type == "double"]
    columns = ["source", *[c.name for c in ATTEMPTS]]
    return left, pd.DataFrame(attempts, columns=columns).astype(dict.fromkeys(numbers, float))


def spans(table, node="n1"):
    mine = table[table["node"] == node]
    return [(row.state, row.begin, row.end) for row in mine.itertuples()]


def test_an_attempt_starts_measures_and_clears_and_the_rest_is_idle():
    table = segments(*frames([allocation()], [attempt(10.0)]))
    assert spans(table) == [
        ("idle", 0, 10), ("starting", 10, 12), ("measuring", 12, 17), ("clearing", 17, 18), ("idle", 18, 100),
    ]  # fmt: skip


def test_a_part_of_an_attempt_that_took_no_time_is_no_segment():
    table = segments(*frames([allocation()], [attempt(10.0, clear=0.0)]))
    assert [state for state, *_ in spans(table)] == ["idle", "starting", "measuring", "idle"]


def test_attempts_side_by_side_stay_on_their_nodes():
    both = [allocation(node="n1"), allocation(node="n2")]
    table = segments(*frames(both, [attempt(10.0, nodes=["n1"]), attempt(12.0, nodes=["n2"], outcome="hang")]))
    assert [state for state, *_ in spans(table, "n1")] == ["idle", "starting", "measuring", "clearing", "idle"]
    assert spans(table, "n2") == [("idle", 0, 12), ("failed", 12, 20), ("idle", 20, 100)]


def test_a_wide_attempt_is_on_all_its_nodes():
    both = [allocation(node="n1"), allocation(node="n2")]
    table = segments(*frames(both, [attempt(0.0, nodes=["n1", "n2"])]))
    assert spans(table, "n1") == spans(table, "n2")


def test_a_timed_out_pilot_is_lost_until_it_was_found_gone():
    timed_out = allocation(end=None, heard_at=30.0, gone_at=90.0)
    lost = attempt(10.0, outcome="lost", ended_at=90.0, steady_at=None, measured_at=None)
    table = segments(*frames([timed_out], [lost]))
    assert spans(table) == [("idle", 0, 10), ("failed", 10, 30), ("lost", 30, 90)]


def test_a_pilot_that_was_gone_as_it_began_held_nothing():
    gone = allocation(end=None, heard_at=None, gone_at=0.0, time_limit_s=60.0)
    assert spans(segments(*frames([gone, allocation(node="n2")], []))) == []


def test_a_pilot_that_runs_is_drawn_until_now():
    runs = allocation(end=None, heard_at=50.0)
    open_attempt = attempt(20.0, outcome=None, ended_at=None, steady_at=None, measured_at=None)
    table = segments(*frames([runs], [open_attempt]))
    assert spans(table) == [("idle", 0, 20), ("running", 20, 50)]


def test_a_node_that_failed_is_lost_while_the_pilot_goes_on():
    table = segments(*frames([allocation(lost_at=40.0)], [attempt(10.0)]))
    assert spans(table)[-2:] == [("idle", 18, 40), ("lost", 40, 100)]


def test_a_job_that_was_given_up_and_still_started_is_held():
    late = allocation(gone_at=-5.0, begin=0.0, end=20.0)
    assert held(frames([late], [])[0], 20.0)[["begin", "end"]].to_numpy().tolist() == [[0.0, 20.0]]


def test_pilots_that_wait_hold_nothing():
    waits = allocation(node=None, begin=None, end=None, heard_at=None)
    assert segments(*frames([waits], [])).empty
    assert segments(frames([waits], [])[0], None).empty


def test_equal_names_in_two_sweeps_are_two_nodes():
    both = [allocation(), allocation(source="other")]
    table = segments(*frames(both, [attempt(10.0)]))
    assert (table["end"] - table["begin"]).sum() == pytest.approx(200)
    assert set(table[table["source"] == "other"]["state"]) == {"idle"}


@settings(max_examples=40)
@given(
    gaps=st.lists(st.floats(0, 20), min_size=0, max_size=6),
    outcomes=st.lists(st.sampled_from(["ok", "hang", "lost"]), min_size=6, max_size=6),
    end=st.one_of(st.none(), st.floats(0, 120)),
    lost=st.one_of(st.none(), st.floats(0, 120)),
    gone=st.one_of(st.none(), st.floats(0, 150)),
)
def test_segments_never_leave_gaps_or_overlap(gaps, outcomes, end, lost, gone):
    begin, attempts = 0.0, []
    for gap, outcome in zip(gaps, outcomes, strict=False):
        begin += gap
        attempts.append(attempt(begin, outcome=outcome))
        begin += 8.0
    one = allocation(end=end, lost_at=lost, gone_at=gone, heard_at=begin)
    tables = frames([one], attempts)
    table = segments(*tables).sort_values("begin")
    edges = table[["begin", "end"]].to_numpy()
    assert np.allclose(edges[1:, 0], edges[:-1, 1])
    if len(table):
        assert edges[0, 0] == 0


def test_a_pilot_within_its_wall_time_is_not_lost_however_long_it_is_unresponsive_and_one_beyond_it_is():
    """Another pilot wrote at 100 s, which makes that now."""
    other = allocation(pilot="p2", node="n2", heard_at=100.0, end=None)
    for limit, expected in ((200.0, [("idle", 0, 100)]), (60.0, [("idle", 0, 30), ("lost", 30, 60)]),
                            (100.0, [("idle", 0, 100)])):  # fmt: skip
        unheard = allocation(end=None, heard_at=30.0, time_limit_s=limit)
        assert spans(segments(*frames([unheard, other], []))) == expected
    unlimited = allocation(end=None, heard_at=30.0, time_limit_s=None)
    assert spans(segments(*frames([unlimited, other], []))) == [("idle", 0, 100)]


def test_segments_are_numbered_from_0_in_the_order_of_nodes_and_time_and_have_their_columns():
    both = [allocation(node="n2"), allocation(node="n1")]
    table = segments(*frames(both, [attempt(10.0, nodes=["n2"])]))
    assert list(table) == ["source", "pilot", "node", "state", "begin", "end"]
    assert table.index.tolist() == list(range(len(table)))
    assert table["node"].tolist() == ["n1"] + ["n2"] * 5
    assert table["begin"].tolist()[1:] == [0, 10, 12, 17, 18]


def test_an_attempt_that_never_got_steady_started_until_it_ended():
    early = attempt(10.0, steady_at=None, measured_at=None, ended_at=40.0)
    states = spans(segments(*frames([allocation()], [early])))
    assert states == [("idle", 0, 10), ("starting", 10, 40), ("idle", 40, 100)]
