"""A winner is called clear only where repeats show it: the iterations of one run say nothing of another run."""

import math
import re

import numpy as np
import pandas as pd
import pytest

import analysis
from analysis.derive.confidence import chance_of, lead_of, run_spread, verdict
from analysis.metrics import METRICS
from sweep.physics.statistics import LEVEL
from sweep.records.schema import OVERSUBSCRIBED
from tests.support.made_records import made_grid

METRIC = METRICS["tokens_per_second_per_gpu"]


def rows_of(*values: tuple[float, ...]) -> pd.DataFrame:
    """One cell: each configuration with the values of its runs, their iterations within 1 % of each other."""
    made = made_grid(1, 1, per_cell=len(values))
    parts = []
    for at, runs in enumerate(values):
        for repeat, value in enumerate(runs):
            row = made.iloc[[at]].assign(tokens_per_second_per_gpu=value, repeat=repeat, run_id=f"r{at}-{repeat}")
            parts.append(row)
    return pd.concat(parts, ignore_index=True)


def claim(rows: pd.DataFrame, *oversubscribed: str) -> tuple[str, str]:
    """The verdict of the one cell, where a host had more work than cores in these runs."""
    if oversubscribed:
        rows = rows.assign(notes=[[OVERSUBSCRIBED] if run in oversubscribed else None for run in rows["run_id"]])
    (cell,) = analysis.best_per_cell(rows).to_dict("records")
    return verdict(cell, METRIC)


@pytest.mark.parametrize(("values", "kind", "words"), [
    (((100.0,),), "alone", "the only configuration that was measured here"),
    (((100.0,), (99.9,)), "tie", "within noise of one other configuration; 0.1% ahead of the second"),
    (((100.0,), (99.9,), (99.8,)), "tie", "within noise of 2 other configurations"),
    # The second won when it was measured again
    (((1492 * 1.359,), (1492.0,)), "leads", "leads by 35.9% within one run; the spread between runs is unknown"),
    (((200.0, 201.0), (100.0,)), "leads", ""), (((200.0,), (100.0, 101.0)), "leads", ""),
    (((2000.0, 1800.0), (1492.0, 1300.0)), "leads",
     r"one would in 14% of cases \(clear: under 1%\): runs differ by \d+\.\d% \(2 and 2 runs\)"),
    # A trainer that prints a step time of one digit: a spread of 0 would make any lead clear
    (((200.0, 200.0), (100.0, 100.0)), "leads",
     "leads by 100.0%; the repeats' figures are equal, so they do not show how much runs differ"),
    (((200.0, 201.0), (100.0, 101.0)), "clear", ""),
    (((200.0, 202.0, 201.0), (100.0, 101.0), (50.0,)), "clear",
     "100.0% ahead of the second of 3, beyond the spread between runs of 0.6% \\(3 and 2 runs\\)"),
])  # fmt: skip
def test_a_lead_is_clear_only_with_two_runs_on_both_sides_that_agree(values, kind, words):
    found, text = claim(rows_of(*values))
    assert found == kind
    assert re.search(words, text)


@pytest.mark.parametrize("runs", [2, 3])
def test_equal_configurations_are_rarely_called_clear(runs: int):
    """Four configurations that are equally fast, 20 % between runs: each claim is false; few are allowed."""
    random = np.random.default_rng(7)
    worlds = 80
    made = []
    for world in range(worlds):
        values = [tuple(100 * np.exp(0.2 * random.standard_normal(runs))) for _ in range(4)]
        rows = rows_of(*values)
        made.append(rows.assign(model=f"m{world}", run_id=f"{world}-" + rows["run_id"]))
    best = analysis.best_per_cell(pd.concat(made, ignore_index=True))
    claims = [verdict(cell, METRIC)[0] for cell in best.to_dict("records")]
    assert len(claims) == worlds
    assert claims.count("clear") <= 3 * LEVEL * worlds


@pytest.mark.parametrize(("lead", "spread", "freedom", "rivals", "chance"), [
    (0.0, 1.0, 4, 1, 1.0), (-0.5, 1.0, 4, 1, 1.0), (math.nan, 1.0, 4, 1, 1.0), (1.0, 0.0, 4, 1, 0.0),
    # Any table of Student's t: 2.132 is exceeded by 5 % on one side at 4 degrees of freedom, 6.314 at 1
    (2.132, 1.0, 4, 1, 0.1), (4.264, 2.0, 4, 1, 0.1), (6.314, 1.0, 1, 1, 0.1), (2.132, 1.0, 4, 3, 0.2),
    (2.132, 1.0, 4, 40, 1.0),
])  # fmt: skip
def test_the_chance_of_a_lead_is_students_over_all_rivals(lead, spread, freedom, rivals, chance):
    assert chance_of(lead, spread, freedom, rivals) == pytest.approx(chance, abs=2e-4)


@pytest.mark.parametrize("run", ["r0-0", "r0-1", "r1-1", "r2-0"])
def test_nothing_is_clear_where_any_run_of_the_cell_met_more_work_than_cores(run: str):
    """Such load comes in spells: two repeats that agree may both have met one, and a slow rival too."""
    rows = rows_of((297.3, 298.0), (100.0, 101.0), (90.0,))
    assert claim(rows)[0] == "clear"
    kind, text = claim(rows, run)
    assert kind == "leads"
    assert text.endswith("(2 and 2 runs); not clear: in 1 run the host had more work than cores")
    assert "in 2 runs the host" in claim(rows, run, "r1-0")[1]


def test_load_in_one_cell_takes_nothing_from_another():
    rows = rows_of((297.3, 298.0), (100.0, 101.0))
    other = rows.assign(model="other", notes=[[OVERSUBSCRIBED]] * len(rows), run_id="o-" + rows["run_id"])
    best = analysis.best_per_cell(pd.concat([rows, other], ignore_index=True)).set_index("model")
    assert best["oversubscribed_runs"].to_dict() == {rows["model"][0]: 0, "other": 4}


def test_the_shown_speed_and_mfu_are_those_of_all_repeats_and_not_of_the_lucky_one():
    """The first run of a top configuration was the fast one: that is why it is a top configuration."""
    rows = rows_of((3164.0, 697.0), (1549.0, 1835.0))
    rows = rows.assign(mfu=rows["tokens_per_second_per_gpu"] / 1e4)
    (best,) = analysis.best_per_cell(rows).to_dict("records")
    assert best["value"] == best["tokens_per_second_per_gpu"] == 1930.5
    assert best["mfu"] == pytest.approx(0.19305)
    assert best["step_time_min_s"] == rows["step_time_min_s"].min()
    (cell,) = analysis.cells(rows).to_dict("records")
    assert cell["tokens_per_second_per_gpu"] == 1930.5, "as the heatmap shows it"


def test_the_notes_of_all_repeats_are_those_of_the_configuration():
    rows = rows_of((200.0, 201.0, 199.0), (100.0,))
    rows = rows.assign(notes=[["a"], ["b", "a"], None, ["c"]])
    found = analysis.best_per_cell(rows)
    assert [list(notes) for notes in found["notes"]] == [["a", "b"]]


@pytest.mark.parametrize(("best", "second", "metric", "lead"), [
    (110.0, 100.0, METRIC, 0.1), (100.0, 100.0, METRIC, 0.0), (90.0, 100.0, METRIC, 0.0),
    (2.0, 2.5, METRICS["step_time_median_s"], 0.25), (110.0, 0.0, METRIC, None), (0.0, 100.0, METRIC, None),
    (110.0, None, METRIC, None), (110.0, math.nan, METRIC, None),
])  # fmt: skip
def test_a_lead_is_a_fraction_of_the_second(best, second, metric, lead):
    assert lead_of({"value": best, "runner_up": second}, metric) == (lead if lead is None else pytest.approx(lead))


def test_the_spread_between_repeats_is_pooled_over_configurations():
    """Deviations of the logarithms from their own mean, over the repeats beyond the first of each."""
    values = [100.0, 110.0, 50.0, 55.0, 60.0, 7.0]
    key = pd.Series([0, 0, 1, 1, 1, 2])
    groups = [np.log(values[:2]), np.log(values[2:5])]
    squares = sum(((logs - logs.mean()) ** 2).sum() for logs in groups)
    spread, freedom = run_spread(pd.DataFrame({"value": values}), key)
    assert (spread, freedom) == (pytest.approx(math.sqrt(squares / 3)), 3)
    alone, none = run_spread(pd.DataFrame({"value": [1.0, 2.0]}), pd.Series([0, 1]))
    assert math.isnan(alone)
    assert none == 0
    for groups in ([0, 0, 0, 0], [0, 0, 1, 1]):
        assert run_spread(pd.DataFrame({"value": [100.0, 110.0, 0.0, -1.0]}), pd.Series(groups))[1] == 1


def test_a_lead_counts_by_the_numbers_of_runs_behind_both():
    (cell,) = analysis.best_per_cell(rows_of((200.0,) * 3, (100.0,) * 2, (150.0,) * 1)).to_dict("records")
    wanted = [math.log(200 / 100) / math.sqrt(1 / 3 + 1 / 2), math.log(200 / 150) / math.sqrt(1 / 3 + 1)]
    assert cell["least_lead"] == pytest.approx(min(wanted))


def test_without_the_spread_of_iterations_one_run_leads_by_an_unknown_surety():
    gone = ["step_time_min_s", "step_time_max_s"]
    (cell,) = analysis.best_per_cell(rows_of((200.0,), (100.0,)).drop(columns=gone)).to_dict("records")
    assert verdict(cell, METRIC) == ("unknown", "leads by 100.0%; the spread of its iterations is not known")
    (cell,) = analysis.best_per_cell(rows_of((200.0, 200.0), (100.0, 110.0)).drop(columns=gone)).to_dict("records")
    assert "2 and 2 runs" in verdict(cell, METRIC)[1], "two runs that agree to the digit show their spread"


def test_of_times_the_shorter_leads():
    rows = rows_of((200.0, 201.0), (100.0,)).assign(step_time_median_s=lambda r: 1e3 / r.tokens_per_second_per_gpu)
    (cell,) = analysis.best_per_cell(rows, "step_time_median_s").to_dict("records")
    assert cell["least_lead"] == pytest.approx(math.log(10.0 / cell["value"]) / math.sqrt(1 / 2 + 1))
    assert cell["least_lead"] > 0


def test_a_chance_of_just_the_level_is_no_claim():
    cell = {"configurations": 2, "ties": [], "value": 110.0, "runner_up": 100.0, "low": 109.0, "high": 111.0}
    cell |= {"repeats": 2, "runner_up_repeats": 2, "spread_freedom": 1, "run_spread": 0.01, "oversubscribed_runs": 0}
    # With one degree of freedom Student's t is Cauchy's distribution; either of the two may lead by chance
    # The first of all looks spends half of the level
    lead = 0.01 / math.tan(math.pi * LEVEL / 4)
    assert chance_of(lead * 1.001, 0.01, 1, 1) < LEVEL / 2 < chance_of(lead * 0.999, 0.01, 1, 1)
    assert verdict({**cell, "least_lead": lead * 1.001}, METRIC)[0] == "clear"
    assert verdict({**cell, "least_lead": lead * 0.999}, METRIC)[0] == "leads"
