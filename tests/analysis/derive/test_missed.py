"""What a search may have missed, of the cells of a plan and as a sentence."""

import pandas as pd
import pytest

from analysis.derive.blanks import missed_by_cell, missed_text

NONE = pd.DataFrame({"run_id": []})


def plan(*rows):
    found = pd.DataFrame(rows, columns=["model", "nodes", "gain", "chance"])
    return found.assign(run_id=[f"r{at}" for at in range(len(rows))])


def test_a_cells_chance_is_that_of_any_of_its_skipped_runs():
    of_plan = plan(("8B", 4, 0.01, 0.2), ("8B", 4, 0.02, 0.5), ("8B", 8, 0.0, 0.1), ("8B", 4, None, None))
    cells = missed_by_cell(of_plan, NONE)
    assert cells["8B", 4] == {"runs": 2, "gain": pytest.approx(0.03), "chance": pytest.approx(0.6)}
    assert cells["8B", 8] == {"runs": 1, "gain": 0.0, "chance": pytest.approx(0.1)}
    assert missed_by_cell(None, NONE) == {}
    assert missed_text(cells) == (
        "Runs left out by prediction: 3. The chance that one of them is over 3 % faster than its cell's best is at "
        "most 60.0% (8B on 4 nodes), with an expected gain of 3.0%."
    )


def test_nothing_is_said_where_nothing_better_can_have_been_missed():
    assert missed_text({}) is None
    assert missed_text(missed_by_cell(plan(("8B", 4, 0.0, 0.0)), NONE)) is None


def test_a_run_that_another_sweep_measured_is_not_missed():
    found = missed_by_cell(plan(("8B", 4, 0.01, 0.2), ("8B", 4, 0.02, 0.5)), pd.DataFrame({"run_id": ["r1"]}))
    assert found["8B", 4] == {"runs": 1, "gain": pytest.approx(0.01), "chance": pytest.approx(0.2)}
