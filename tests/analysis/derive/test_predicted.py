"""Predictions from records."""

import dataclasses
import json

import pytest

from analysis.derive.best import completed
from analysis.derive.predicted import columns_of, predict_by_physics
from sweep.physics import memory, step_time
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.physics.profiles import PROFILES
from tests.support.made_records import made_grid

BOTH = ["predicted_peak_bytes", "predicted_step_s"]


def physical(**changes):
    shape = json.dumps(dataclasses.asdict(MODELS["1B"]))
    made = made_grid(1, 2, failing=False).assign(
        shape_json=shape, params_json="{}", pp_schedule="1f1b", cp=1, ep=1, compile=False, peak_memory_bytes=2**35
    )
    return completed(made.assign(**changes)).reset_index(drop=True)


def test_predictions_are_those_of_the_records_gpu_compilation_and_parameters():
    rows = predict_by_physics(physical(gpu="H100"))
    columns = columns_of(rows)
    assert rows["predicted_peak_bytes"].to_numpy() == pytest.approx(memory.peak_bytes(columns, PROFILES["builtin"]))
    wanted = step_time.step_time_s(columns, GPUS["h100"], PROFILES["builtin"])
    assert rows["predicted_step_s"].to_numpy() == pytest.approx(wanted)
    compiled = predict_by_physics(physical(compile=True))
    assert (compiled["predicted_peak_bytes"] < rows["predicted_peak_bytes"]).all()
    single = predict_by_physics(physical(params_json='{"weights_dtype": "bf16"}'))
    assert (single["predicted_peak_bytes"] < rows["predicted_peak_bytes"]).all()


@pytest.mark.parametrize("changes", [{"workload": "somebody's"}, {"shape_json": None}])
def test_nothing_is_predicted_without_data(changes):
    assert predict_by_physics(physical(**changes))[BOTH].isna().all(axis=None)


def test_no_seconds_are_predicted_for_unknown_hardware():
    rows = predict_by_physics(physical(gpu="cpu"))
    assert rows["predicted_step_s"].isna().all()
    assert rows["predicted_peak_bytes"].notna().all()


def test_each_workload_of_a_table_has_its_own_predictions():
    rows = physical()
    mixed = rows.assign(
        compile=[True, False] * (len(rows) // 2), gpu=["h100"] * (len(rows) // 2) + ["b200"] * (len(rows) // 2)
    )
    found = predict_by_physics(mixed)
    for at in range(len(rows)):
        alone = predict_by_physics(mixed.iloc[[at]].reset_index(drop=True)).iloc[0]
        assert found.iloc[at][BOTH].tolist() == pytest.approx(alone[BOTH].tolist())
