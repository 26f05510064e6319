"""The example for one GPU: what it admits on each kind, and how full it may make the memory."""

import json

import pytest

from analysis.heatmap.cell_text import layout
from sweep.contract import Run
from sweep.inputs.load import load_inputs
from sweep.physics import memory
from sweep.physics.hardware import GIB, GPUS
from sweep.physics.profiles import profile_of
from sweep.planning.build import build
from tests.support.paths import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "one-gpu.yaml"
FP32 = {"weights_dtype": "fp32"}
MODELS = {"Llama-3.2-1B", "Llama-3.2-3B", "Llama-3-8B"}


def runs_on(gpu: str) -> list[Run]:
    grid, site = load_inputs(EXAMPLE, [f"site.gpu={gpu}"], None)
    return [planned.run() for planned in build(grid, site).runs]


def share_needed(run: Run, gpu: str) -> float:
    """Of the GPU's memory, by the formulas, with the CUDA context."""
    columns = {**run.shape, **vars(run.layout), "sequence_length": run.sequence_length, "dtype": run.dtype}
    profile = profile_of(run.workload, run.params, compiled=run.compile)
    needed = float(memory.peak_bytes(columns, profile) + memory.outside_torch_bytes(columns))
    return needed / (GPUS[gpu].memory_bytes / 1e9 * GIB)


@pytest.mark.parametrize("gpu", ["h100", "h200"])
def test_each_model_can_be_measured_and_none_is_predicted_to_fill_the_memory(gpu):
    """Acceptance 4 of the GPU issue."""
    runs = runs_on(gpu)
    assert {run.model for run in runs} == MODELS
    shares = {run.run_id: share_needed(run, gpu) for run in runs}
    assert max(shares.values()) <= 0.97
    assert max(shares.values()) > 0.7, "the limit is not what keeps them small"
    for run in runs:
        assert run.params["weights_dtype"] == ("bf16" if run.model == "Llama-3-8B" else "fp32"), json.dumps(run.params)


def test_the_heatmap_names_states_in_bf16():
    run = next(run for run in runs_on("h100") if run.model == "Llama-3-8B")
    cell = {"params_json": json.dumps(dict(run.params)), "zero": 0}
    assert ["ZeRO0", "bf16-states"] in layout(cell)
    assert ["ZeRO0"] in layout({"params_json": json.dumps(FP32), "zero": 0})
