"""A plan's predictions as rows that figures can draw."""

import numpy as np
import pandas as pd
import pytest

from analysis.derive.planned import predicted_records
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
