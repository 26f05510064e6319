"""The gate: predicted step times and memory of about 120 layouts, every model of the catalogue among them, may not
change silently, part by part.

After a change that is meant to change them: ``make accept-anchors``, and the table of accuracy before and after, which
it prints, goes into the commit's message.
"""

import csv
import os
from pathlib import Path

import pytest
import yaml

from sweep.physics import memory, pipeline
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.physics.pipeline import STAGES
from sweep.physics.prediction import describe
from sweep.physics.profiles import PROFILES, profile_of
from sweep.physics.step_time import predict

FILE = Path(__file__).parent / "anchors.csv"
BASE = {"sequence_length": 4096, "gpus_per_node": 8, "dtype": "bf16", "grad_accum": 8, "dp": 8}
ANCHORS = yaml.safe_load((Path(__file__).parent / "anchors.yaml").read_text())


def predicted(name):
    """The logarithm of the step's seconds and its spread, milliseconds of each part, MiB of each stage's rank."""
    trainer, model, gpu, layout = ANCHORS[name]
    columns, profile = MODELS[model].as_dict() | BASE | layout, PROFILES[trainer]
    if layout.get("compile"):
        profile = profile_of(trainer, {}, compiled=True) or profile
    found = describe(columns, GPUS[gpu], profile)
    median, sd = found.log_median, found.prior_sd
    parts = {f"{part}_ms": 1e3 * seconds for part, seconds in predict(columns, GPUS[gpu], profile).items()}
    totals = {stage: memory.breakdown(columns, profile, stage)["total"] / 2**20 for stage in STAGES}
    bytes_ = {f"{stage}_mib": total * pipeline.exists(columns, stage) for stage, total in totals.items()}
    found = {"log_seconds": median[0], "spread": sd[0]} | parts | bytes_
    return {column: float(f"{float(value):.6g}") for column, value in found.items()}


def accepted():
    with FILE.open() as file:
        rows = {row.pop("layout"): row for row in csv.DictReader(file)}
    return {name: {column: float(text) for column, text in row.items()} for name, row in rows.items()}


@pytest.mark.skipif(os.environ.get("SWEEP_UPDATE_GOLDENS") != "1", reason="changes the file: make accept-anchors")
def test_accept():
    found = {name: predicted(name) for name in sorted(ANCHORS)}
    with FILE.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["layout", *next(iter(found.values()))], lineterminator="\n")
        writer.writeheader()
        writer.writerows({"layout": name} | row for name, row in found.items())


def test_each_model_has_an_anchor_and_each_anchor_is_accepted():
    assert {model for _, model, _, _ in ANCHORS.values()} == set(MODELS)
    assert set(accepted()) == set(ANCHORS)


@pytest.mark.parametrize("name", sorted(ANCHORS))
def test_a_prediction_is_the_accepted_one(name):
    wanted = pytest.approx(accepted()[name], rel=2e-6, abs=1e-9)
    assert predicted(name) == wanted, "meant? then make accept-anchors, with the accuracy before and after"
