"""The winner under balanced routing, and what becomes of it where tokens prefer some experts."""

import pandas as pd

from analysis.derive.best import best_per_cell
from analysis.metrics import METRICS
from analysis.report.answer import skew_of

RATE = METRICS["tokens_per_second_per_gpu"]


def records(*rows) -> pd.DataFrame:
    """Each row: (ep, routing, rate)."""
    base = {"model": "moe", "nodes": 1, "gpus": 8, "outcome": "ok", "final": True, "dp": 8, "tp": 1, "pp": 1, "cp": 1}
    steps = {"step_time_min_s": 1.0, "step_time_median_s": 1.0, "step_time_max_s": 1.0}
    return pd.DataFrame(
        [
            base | steps | {"run_id": f"r{at}", "ep": ep, "routing": routing, RATE.column: rate}
            for at, (ep, routing, rate) in enumerate(rows)
        ]
    )


def test_the_winner_under_balanced_routing_may_lose_under_skew():
    table = records((8, "balanced", 100.0), (1, "balanced", 90.0), (8, "skewed:1.2", 60.0), (1, "skewed:1.2", 80.0))
    (row,) = skew_of(table, RATE)
    assert (row["routing"], row["winner"]) == ("skewed:1.2", "DP8 TP1 PP1 EP8")
    assert row["answer"] == "is 25.0% behind: DP8 TP1 PP1 is best"


def test_it_stays_the_winner_and_without_balanced_or_skewed_routing_there_is_no_question():
    table = records((8, "balanced", 100.0), (1, "balanced", 90.0), (8, "skewed:1", 80.0), (1, "skewed:1", 70.0))
    assert [row["answer"] for row in skew_of(table, RATE)] == ["stays the best"]
    assert skew_of(table[:2], RATE) == skew_of(table[2:], RATE) == []


def test_a_winner_that_was_not_measured_under_skew_is_not_said_to_stay():
    (row,) = skew_of(records((8, "balanced", 100.0), (1, "skewed:1", 70.0)), RATE)
    assert row["answer"].startswith("is not measured there: DP8")


def test_configurations_under_different_routing_do_other_work():
    (best,) = best_per_cell(records((8, "balanced", 100.0), (8, "skewed:1", 80.0), (1, "balanced", 90.0))).to_dict(
        "records"
    )
    assert (best["routing"], best["configurations"], best["of_other_work"]) == ("balanced", 2, 1)
