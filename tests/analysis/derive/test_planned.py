"""A plan's predictions as rows that figures can draw."""

import numpy as np
import pandas as pd
import pytest

from analysis.derive.planned import learned_records, predicted_records, with_predictions
from sweep.errors import SweepError
from tests.support.made_plans import BASE, plan_of

TEXT = BASE.replace("nodes: [1]", "nodes: [1, 2]") + "tp: [1, 2, 5]\nmicro_batch_size: [1, 2]\nzero: [0, 1]\n"


def table(text=TEXT):
    return plan_of(text).table.to_pandas()


def test_each_run_has_its_predicted_rate_and_no_rejected_candidate_has_a_row():
    plan = table()
    rows = predicted_records(plan)
    runs = plan[plan["status"] == "run"]
    assert 0 < len(rows) <= len(runs)
    own = runs.set_index("run_id").loc[rows["run_id"]]
    step, gpus = own["predicted_step_s"].to_numpy(), own["gpus"].to_numpy()
    assert rows["step_time_median_s"].tolist() == step.tolist()
    rate = own["global_batch_tokens"].to_numpy() / step
    assert np.allclose(rows["tokens_per_second"], rate)
    assert np.allclose(rows["tokens_per_second_per_gpu"], rate / gpus)
    assert rows["predicted"].all()
    assert rows["final"].all()
    assert set(rows["outcome"]) == {"ok"}
    assert rows["peak_memory_bytes"].isna().all(), "of any workload's memory nothing is known"


def test_a_run_that_the_plan_puts_behind_slower_ones_is_not_the_predicted_best():
    """Its memory is over by less than the model's error."""
    plan = table()
    runs = plan[(plan["status"] == "run") & (plan["nodes"] == 1)].sort_values("position")
    last = runs["run_id"].iloc[-1]
    plan.loc[plan["run_id"] == last, "predicted_step_s"] = runs["predicted_step_s"].min() / 10
    rows = predicted_records(plan)
    assert last not in set(rows["run_id"])
    assert runs["run_id"].iloc[0] in set(rows["run_id"]), "the plan's first of the cell is"
    best = rows.sort_values("tokens_per_second", ascending=False).groupby("nodes")["position"].first()
    assert best.to_dict() == rows.groupby("nodes")["position"].min().to_dict()
    peaks = plan.assign(predicted_peak_bytes=7.0)
    assert set(predicted_records(peaks)["peak_memory_bytes"]) == {7.0}


def test_where_nothing_is_predicted_the_remedy_names_the_gpu():
    with pytest.raises(SweepError, match="no run of the plan has a predicted step time") as caught:
        predicted_records(table(TEXT.replace("h100", "cpu")))
    assert "h100" in str(caught.value)
    some = table()
    some.loc[some.index[0], "predicted_step_s"] = np.nan
    assert some["run_id"].iloc[0] not in set(predicted_records(some)["run_id"])
    assert isinstance(predicted_records(some), pd.DataFrame)
    assert "index" not in predicted_records(some)


def test_the_interval_of_a_predicted_rate_is_that_of_its_factor():
    plan = table()
    ids = plan.loc[plan["status"] == "run", "run_id"].tolist()
    rows = predicted_records(plan, dict.fromkeys(ids, 2.0))
    step = rows["step_time_median_s"]
    assert np.allclose(rows["step_time_min_s"], step / 2)
    assert np.allclose(rows["step_time_max_s"], step * 2)
    assert predicted_records(plan)["step_time_min_s"].isna().all(), "no factor, no interval"


def test_what_other_cells_teach_becomes_rows_with_that_rate_and_its_interval():
    plan = table()
    (first, second) = plan.loc[plan["status"] == "run", "run_id"].tolist()[:2]
    rates = {second: (100.0, 80.0, 125.0), first: (50.0, 25.0, 200.0), "of another plan": (1.0, 1.0, 1.0)}
    rows = learned_records(plan, rates).set_index("run_id")
    assert set(rows.index) == {first, second}
    assert "index" not in rows
    for run_id in (first, second):
        row = rows.loc[run_id]
        expected, low, high = rates[run_id]
        assert row["tokens_per_second_per_gpu"] == pytest.approx(expected)
        assert row["tokens_per_second"] == pytest.approx(expected * row["gpus"])
        for seconds, rate in (("step_time_median_s", expected), ("step_time_max_s", low), ("step_time_min_s", high)):
            assert row[seconds] == pytest.approx(row["global_batch_tokens"] / (rate * row["gpus"]))
        assert row["predicted"]
    assert learned_records(plan, {}).empty


def measured_rows(*rows):
    plain = {"model": "1B", "nodes": 1, "outcome": "ok", "gpu": "h100", "sequence_length": 64, "dtype": "bf16"}
    return pd.DataFrame([plain | {"tokens_per_second_per_gpu": 100.0, "mfu": 0.4} | row for row in rows])


def predicted_row(**changes):
    row = {"model": "1B", "nodes": 2, "sequence_length": 64, "dtype": "bf16", "predicted": True, "outcome": "ok"}
    return pd.DataFrame([row | {"tokens_per_second_per_gpu": 50.0} | changes])


def test_predictions_join_the_records_of_cells_in_which_no_run_succeeded():
    records = measured_rows({}, {"nodes": 2, "outcome": "hang", "mfu": None})
    both = with_predictions(records, predicted_row())
    assert both["predicted"].tolist() == [False, False, True]
    assert both.index.tolist() == [0, 1, 2]
    assert both["mfu"].iloc[2] == pytest.approx(50 * 0.4 / 100)
    same = with_predictions(records, predicted_row(nodes=1))
    assert same is records, "that cell was measured"
    other = with_predictions(records, predicted_row(nodes=1, model="8B"))
    assert len(other) == 3
    assert np.isnan(other["mfu"].iloc[2]), "of another model's MFU nothing is known"


@pytest.mark.parametrize("records", [
    measured_rows({}, {"gpu": "a100"}), measured_rows({}).drop(columns="gpu"), measured_rows({"sequence_length": 128}),
])  # fmt: skip
def test_an_mfu_is_predicted_only_from_runs_of_the_same_work_on_the_one_kind_of_gpu(records):
    both = with_predictions(records, predicted_row())
    assert both["mfu"].isna().iloc[-1]
