"""Predictions against measurements."""

import pytest

from analysis.derive.best import completed
from analysis.derive.predicted import columns_of, errors, predictions
from sweep.physics import memory
from sweep.physics.catalogue import MODELS
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
    assert first["predicted_peak_bytes"] == pytest.approx(memory.peak_bytes(columns, PROFILES["ours"])[0])
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
