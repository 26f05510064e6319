"""Predictions against measurements."""

import pandas as pd
import pytest

from analysis.derive.best import completed
from analysis.derive.predicted import columns_of, errors, predictions
from sweep.physics import memory, step_time
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.physics.profiles import PROFILES
from tests.support.made_records import made_grid


def physical(**changes):
    import dataclasses
    import json

    shape = json.dumps(dataclasses.asdict(MODELS["1B"]))
    made = made_grid(1, 2, failing=False).assign(
        shape_json=shape, params_json="{}", pp_schedule="1f1b", cp=1, ep=1, compile=False, peak_memory_bytes=2**35
    )
    return completed(made.assign(**changes))


def test_predictions_from_the_record_are_those_of_the_physics():
    rows = predictions(physical(), None)
    first = rows.iloc[0]
    columns = columns_of(rows)
    assert first["predicted_peak_bytes"] == pytest.approx(memory.peak_bytes(columns, PROFILES["builtin"])[0])
    assert (rows["predicted_step_s"] > 0).all()
    error = errors(rows, "memory")
    assert error.iloc[0] == pytest.approx(first["predicted_peak_bytes"] / 2**35 - 1)


@pytest.mark.parametrize("changes", [{"workload": "somebody's"}, {"shape_json": None}, {"simulated": True}])
def test_nothing_is_predicted_without_data(changes):
    assert errors(predictions(physical(**changes), None), "memory").empty


def test_no_seconds_are_predicted_for_unknown_hardware():
    rows = predictions(physical(gpu="cpu"), None)
    assert errors(rows, "time").empty
    assert len(errors(rows, "memory"))


def test_a_plans_own_predictions_count_before_those_of_the_physics():
    rows = physical()
    ids = rows["run_id"].tolist()
    plan = pd.DataFrame({"run_id": [*ids[:2], ids[0], None], "predicted_step_s": [2.0, 3.0, 9.0, 4.0]})
    found = predictions(rows, plan)
    assert found["run_id"].tolist() == ids[:2]
    assert found["predicted_step_s"].tolist() == [2.0, 3.0]
    assert found["predicted_peak_bytes"].isna().all()
    assert set(found["predicted_by"]) == {"the plan"}
    assert errors(found, "time").tolist() == [1.0, 2.0], "each measured step took a second"
    assert errors(found, "memory").empty
    others = plan.assign(run_id="another sweep's")
    assert set(predictions(rows, others)["predicted_by"]) == {"the physics models, from the record"}
    assert len(predictions(rows, others)) == len(rows)
    nothing = plan.assign(predicted_step_s=float("nan"))
    assert set(predictions(rows, nothing)["predicted_by"]) == {"the physics models, from the record"}
    assert len(predictions(rows, plan.drop(columns="predicted_step_s"))) == len(rows)


def test_predictions_are_those_of_the_records_gpu_compilation_and_parameters():
    rows = predictions(physical(gpu="H100"), None)
    wanted = step_time.step_time_s(columns_of(rows), GPUS["h100"], PROFILES["builtin"])
    assert rows["predicted_step_s"].to_numpy() == pytest.approx(wanted)
    compiled = predictions(physical(compile=True), None)
    assert (compiled["predicted_peak_bytes"] < rows["predicted_peak_bytes"]).all()
    single = predictions(physical(params_json='{"weights_dtype": "bf16"}'), None)
    assert (single["predicted_peak_bytes"] < rows["predicted_peak_bytes"]).all()


def test_only_runs_that_succeeded_and_count_have_errors():
    made = physical()
    some = made.assign(outcome=["ok", "hang"] * (len(made) // 2))
    assert predictions(some, None)["run_id"].tolist() == made["run_id"].tolist()[::2]


@pytest.mark.parametrize(("predicted", "measured"), [(0.0, 1.0), (-1.0, 1.0), (1.0, 0.0), (1.0, None), (None, 1.0)])
def test_an_error_needs_both_numbers_and_both_above_nothing(predicted, measured):
    rows = pd.DataFrame({"predicted_step_s": [predicted, 3.0], "step_time_median_s": [measured, 2.0]}, dtype=float)
    assert errors(rows, "time").tolist() == [0.5]


def test_a_plan_without_run_ids_or_without_predictions_is_none():
    rows = physical()
    by_physics = {"the physics models, from the record"}
    whole = pd.DataFrame({"run_id": rows["run_id"], "predicted_step_s": 2.0, "predicted_peak_bytes": 3.0})
    for column in ("run_id", ["predicted_step_s", "predicted_peak_bytes"]):
        assert set(predictions(rows, whole.drop(columns=column))["predicted_by"]) == by_physics
    found = predictions(rows, whole)
    assert found[["predicted_step_s", "predicted_peak_bytes"]].to_numpy().tolist() == [[2.0, 3.0]] * len(rows)
    assert "index" not in found
    assert "index" not in predictions(rows, None)


def test_each_workload_of_a_table_has_its_own_predictions():
    rows = physical()
    mixed = rows.assign(
        compile=[True, False] * (len(rows) // 2), gpu=["h100"] * (len(rows) // 2) + ["b200"] * (len(rows) // 2)
    )
    found = predictions(mixed, None)
    for at in range(len(rows)):
        alone = predictions(mixed.iloc[[at]], None).iloc[0]
        both = ["predicted_peak_bytes", "predicted_step_s"]
        assert found.iloc[at][both].tolist() == pytest.approx(alone[both].tolist())
