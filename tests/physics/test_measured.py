"""The built-in workload's predictions beside what it measured on one H200 (docs/gpu-results.md), before any run there.

The formulas of compiled layers come from the runs of Llama-3.2-1B. Steps of all others were predicted first (full
recomputation apart: its mechanism was found by them), and so were the peaks of 3B and 8B. That normed queries and keys,
and what a mixture of experts stores, were missing was found by the peaks of Qwen3 and Mixtral.
"""

import csv

import pytest
import yaml

from sweep.physics import memory, step_time
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.physics.profiles import profile_of
from sweep.physics.shapes import ModelShape
from tests.support.paths import REPOSITORY

DATA = REPOSITORY / "docs" / "data"
ROWS = list(csv.DictReader((DATA / "measured_h200.csv").open()))
STATED = yaml.safe_load((DATA / "measured_h200.yaml").read_text())["models"]
MIXTURE = {"True bf16": 0.08, "False bf16": 0.12}
STEP = {"True bf16": 0.035, "False bf16": 0.09, "True fp8_tensorwise": 0.02, "True fp8_rowwise": 0.14}
"""compiled, dtype -> relative error of the step time"""


def columns_of(row):
    layout = {name: int(row[name]) for name in ("micro_batch_size", "grad_accum")}
    words = {"recompute": row["recompute"], "dtype": row["dtype"], "compile": row["compile"] == "True"}
    stated = STATED[row["model"]]
    shape = MODELS[stated] if isinstance(stated, str) else ModelShape(**stated)
    return shape.as_dict() | layout | words | {"sequence_length": 4096}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(list(row.values())[:-2]))
def test_one_h200(row):
    params = {name: row[name] for name in ("attention", "weights_dtype")}
    profile = profile_of("transformer", params, compiled=row["compile"] == "True")
    columns = columns_of(row)
    mixture = columns["num_experts"] > 0
    peak = 0.03 if row["recompute"] == "full" else 0.04 if row["model"] == "Qwen3-0.6B" else 0.01 if mixture else 0.005
    assert memory.peak_bytes(columns, profile) == pytest.approx(float(row["peak_bytes"]), rel=peak)
    step = (MIXTURE if mixture else STEP)[f"{row['compile']} {row['dtype']}"]
    assert step_time.step_time_s(columns, GPUS["h200"], profile) == pytest.approx(float(row["step_s"]), rel=step)
