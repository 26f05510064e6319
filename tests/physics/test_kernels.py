"""Seconds of matrix products, against the formula by hand."""

import pytest

from sweep.physics import constants, step_time
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.physics.kernels import product_s
from sweep.physics.machine import Machine
from sweep.physics.trainers import TRAINERS

H100 = Machine(gpu=GPUS["h100"])


@pytest.mark.parametrize(("rows", "width", "depth", "groups"), [(1, 64, 8192, 1), (4, 4096, 4096, 8), (2, 128, 128, 3)])
def test_a_thin_product_takes_as_long_as_its_matrices_are_read_and_written(rows, width, depth, groups):
    moved = 2 * groups * (rows * depth + depth * width + rows * width)
    assert product_s(rows, width, depth, 1e30, H100, groups) == pytest.approx(moved / H100.memory_bytes_per_s)


@pytest.mark.parametrize(("rows", "width", "depth", "groups"), [(8192, 4096, 4096, 1), (4096, 512, 2048, 4)])
def test_a_large_product_takes_its_flops_half_a_wave_and_the_fill_of_its_pipeline(rows, width, depth, groups):
    flops = 2 * rows * width * depth * groups
    half_a_wave = 0.5 * H100.multiprocessors * constants.TILE.median / (rows * width * groups)
    fill = constants.DEPTH.median / depth
    wanted = flops / 1e13 * (1 + half_a_wave) * (1 + fill)
    assert product_s(rows, width, depth, 1e13, H100, groups) == pytest.approx(wanted)


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("layout", [
    {"tp": 1, "zero": 0, "recompute": "none"}, {"tp": 2, "zero": 0, "recompute": "none"},
    {"tp": 1, "zero": 3, "recompute": "full"}, {"tp": 8, "zero": 3, "recompute": "selective", "compile": True},
    {"tp": 1, "zero": 1, "recompute": "full", "compile": False},
    {"tp": 1, "zero": 2, "recompute": "full", "compile": True},
])  # fmt: skip
def test_the_host_launches_each_operation_of_a_layer_and_what_the_gpu_does_meanwhile_counts(trainer, layout):
    behaviour = TRAINERS[trainer]
    columns = MODELS["8B"].as_dict() | {"pp": 1, "dp": 8, "cp": 1, "ep": 1, "gpus_per_node": 8} | layout
    first, second = (8, 8) if layout.get("compile") else behaviour.operations
    more = (behaviour.tensor_operations if layout["tp"] > 1 else 0) + (12 if layout["zero"] == 3 else 0)
    again = (first + more) * (layout["recompute"] == "full")
    accumulated = behaviour.gradient_operations * behaviour.layer_tensors
    each = constants.LAUNCH_S.median
    forward = 4 * (first + more) * each
    backward = 4 * ((second + more) * 2 / 3 + again + accumulated) * each
    found = [
        float(step_time._launch_s(columns, behaviour, 4.0, *gpu)) for gpu in ((0, 0), (forward / 2, 9.0), (9.0, 0))
    ]
    assert found == pytest.approx([forward + backward, forward / 2, backward])
