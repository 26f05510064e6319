"""The results table and the sweep state choose the same attempt of a run, and the same record of an attempt."""

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from sweep.outcomes import Outcome
from sweep.records.collect import one_row_per_attempt, which_count
from sweep.state.events import RerunRequested
from sweep.state.state import SweepState
from tests.support.made_events import recorded, state_of

RUNS = ("run-a", "run-b")
own_outcomes = st.sampled_from([Outcome.OK, Outcome.OK, Outcome.HANG, Outcome.OOM_CUDA, Outcome.NODE_FAIL])
records_of_an_attempt = st.one_of(
    own_outcomes.map(lambda own: [own]),
    st.just([Outcome.LOST]),
    st.just([Outcome.LOST, Outcome.LOST]),  # by two launchers, of which the one took the other's place
    own_outcomes.map(lambda own: [own, Outcome.LOST]),
)
"""the records of an attempt, in no order: its one pilot's own record, what launchers inferred, or both"""


@st.composite
def histories(draw):
    """(records, reruns) of some runs: (run_id, attempt, outcome) of each record, (run_id, after) of each rerun."""
    records, reruns = [], []
    for run_id in RUNS:
        attempts = draw(st.lists(records_of_an_attempt, max_size=5))
        records += [
            (run_id, number, outcome) for number, results in enumerate(attempts, start=1) for outcome in results
        ]
        reruns += [(run_id, after) for after in draw(st.lists(st.integers(0, len(attempts)), max_size=2))]
    return records, reruns


def replayed(records, reruns, order) -> SweepState:
    events = [recorded(run_id, outcome, 1.0, attempt) for run_id, attempt, outcome in records]
    events += [RerunRequested(time=1.0, run_id=run_id, after=after) for run_id, after in reruns]
    order.shuffle(events)
    return state_of(*events)


def tabled(records, reruns, order) -> pd.DataFrame:
    """One row per attempt with its verdicts, as the results table has it; the records in an order of their own."""
    rows = list(records)
    order.shuffle(rows)
    keys = pd.DataFrame(rows, columns=["run_id", "attempt", "outcome"])
    keys = keys.assign(outcome=keys["outcome"].map(str), started_at=keys["attempt"].astype(float))
    after = {run_id: max(a for run, a in reruns if run == run_id) for run_id, _ in reruns}
    chosen = keys.loc[one_row_per_attempt(keys)]
    return pd.concat([chosen, which_count(chosen, after)], axis="columns")


@given(histories(), st.randoms(use_true_random=False))
def test_the_attempt_and_the_record_that_count_are_the_same_in_the_table_and_in_the_state(history, order):
    sweep_state, table = replayed(*history, order), tabled(*history, order)
    for run_id in RUNS:
        state, rows = sweep_state.run_state(run_id), table[table["run_id"] == run_id]
        counts = state.ok or state.last
        assert list(rows.loc[rows["final"], "attempt"]) == ([] if counts is None else [counts.number])
        surplus = [number for number in sorted(state.attempts) if state.ok and number > state.ok.number]
        assert sorted(rows.loc[rows["surplus"], "attempt"]) == surplus
    in_state = {
        (run_id, number): str(attempt.outcome)
        for run_id, state in sweep_state.runs.items()
        for number, attempt in state.attempts.items()
    }
    in_table = {(run, attempt): outcome for run, attempt, outcome in table[["run_id", "attempt", "outcome"]].to_numpy()}
    assert in_table == in_state
    outcomes: dict[tuple[str, int], set[Outcome]] = {}
    for run_id, attempt, outcome in history[0]:
        outcomes.setdefault((run_id, attempt), set()).add(outcome)
    assert in_table == {key: str(next(iter(them - {Outcome.LOST}), Outcome.LOST)) for key, them in outcomes.items()}
