"""Runs as columns: what strategies read of them, by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from sweep.physics import memory
from sweep.physics.hardware import GPUS
from sweep.physics.prediction import describe, describe_unknown
from sweep.physics.profiles import PROFILES
from sweep.physics.step_time import PARTS
from sweep.search.candidates import UNKNOWN_GPU, Candidates, joined_candidates
from sweep.search.memory_model import KNOWN_TRAINER, UNKNOWN_TRAINER
from sweep.search.scales import Scales
from tests.support.configurations import made_candidates, run

H100 = GPUS["h100"]


def candidates(*runs, gpu=H100) -> Candidates:
    return made_candidates(runs, gpu)


def test_a_runs_place_among_others_is_in_doublings_and_kinds_are_two_apart():
    found = candidates(
        {**run(dp=1, tp=16, pp=2, mbs=4, gas=8, zero=3, recompute="selective"), "nodes": 4},
        run(dp=8, recompute="full"),
        run(dp=8),
    ).features
    hidden = 11.0  # 2048
    # tp, pp, micro-batch, steps, nodes, cp, ep, hidden size, ZeRO, across nodes, no pipeline, recomputation
    assert found.tolist() == [
        [4, 1, 2, 3, 2, 0, 0, hidden, 3, 2, 0, 1],
        [0, 0, 0, 3, 0, 0, 0, hidden, 0, 0, 2, 2],
        [0, 0, 0, 3, 0, 0, 0, hidden, 0, 0, 2, 0],
    ]


def test_tokens_of_a_step_per_gpu():
    found = candidates(run(dp=4, tp=2, mbs=2, gas=16)).log_tokens_per_gpu
    assert found[0] == pytest.approx(math.log(4 * 2 * 16 * 4096 / 8))


def test_repeats_are_of_one_configuration_and_every_difference_makes_another():
    base = run(dp=8)
    others = [
        run(dp=8, repeat=1), run(dp=8, mbs=2), run(dp=8, workload="mine"), run(dp=8, model="8B"), run(dp=8, fused=True),
        {**base, "env": {"X": "1"}}, {**base, "dtype": "fp16"}, {**base, "nodes": 2}, {**base, "compile": True},
    ]  # fmt: skip
    assert candidates(base, *others).duplicates.tolist() == [0, 0, 1, 2, 3, 4, 5, 6, 7, 8]


def test_cells_are_models_and_numbers_of_nodes_and_models_are_shapes():
    found = candidates(run(), {**run(), "nodes": 2}, run(model="8B"), run(mbs=2))
    assert found.cell_names == (("1B", 1), ("1B", 2), ("8B", 1))
    assert found.cells.tolist() == [0, 1, 2, 0]
    assert found.models.tolist() == [0, 0, 1, 0]
    assert found.sizes.tolist() == [0, 1, 0, 0]
    assert found.index == {f"run-{i:016x}": i for i in range(4)}


@pytest.mark.parametrize(("pp", "gas", "impossible"), [(4, 2, True), (4, 3, False), (1, 1, False)])
def test_a_pipeline_without_a_plans_rules_needs_as_many_micro_batches_as_further_stages(pp, gas, impossible):
    found = candidates(run(pp=pp, gas=gas))
    assert found.impossible.tolist() == [impossible]
    assert replace(found, planned=True).impossible.tolist() == [False]


def test_memory_rules_out_runs_of_trainers_with_a_profile_and_of_known_gpus():
    large = run(model="80B", workload="megatron")
    small = run(model="1B", dp=8, zero=1, workload="megatron")
    found = candidates(large, small, {**large, "workload": "somebody"})
    assert found.impossible.tolist() == [True, False, False]
    assert found.memory_use[2] == 0
    columns = {name: value[1] for name, value in found.columns.items()}
    fit = memory.fits(columns, H100, PROFILES["megatron"])
    assert found.memory_use[1] == pytest.approx(float(fit.needed_bytes) / fit.limit_bytes)
    whole, adapters = candidates(small, {**small, "params": {"frozen_weights": True}}).memory_use
    assert adapters < whole == found.memory_use[1]
    assert not candidates(large, gpu=UNKNOWN_GPU).impossible.any()
    assert candidates(large, gpu=UNKNOWN_GPU).memory_limit_bytes == math.inf
    assert found.memory_limit_bytes == memory.usable_bytes(H100)


def test_a_run_that_needs_half_as_much_again_as_there_is_memory_is_impossible():
    small = run(model="1B", dp=8, zero=1, workload="megatron")
    fits = float(candidates(small).memory_use[0])
    less = candidates(small, gpu=replace(H100, memory_bytes=int(H100.memory_bytes * fits / 1.5)))
    assert 1.2 < less.memory_use[0] < 1.9
    assert less.impossible.tolist() == [True]


def test_predicted_peaks_are_wide_for_a_trainer_without_a_profile_and_absent_without_a_known_memory():
    found = candidates(run(workload="megatron", dp=8), run(dp=8))
    assert found.peaks.spreads.tolist() == [KNOWN_TRAINER, UNKNOWN_TRAINER]
    assert found.peaks.log_use[0] == found.peaks.log_use[1], "taken for Megatron's"
    assert found.peaks.shares.sum(axis=1) == pytest.approx(1.0)
    assert candidates(run(), gpu=UNKNOWN_GPU).peaks is None


def test_each_trainers_runs_are_described_by_its_own_model_in_the_plans_order():
    given = [run(dp=8), run(dp=8, workload="megatron"), run(dp=4, tp=2), run(dp=4, tp=2, workload="nanotron")]
    found = candidates(*given)
    columns = [{name: value[i] for name, value in found.columns.items()} for i in range(4)]
    for row, trainer in ((1, "megatron"), (3, "nanotron")):
        alone = describe(columns[row], H100, PROFILES[trainer])
        assert found.layouts.parts[row, : len(PARTS)] == pytest.approx(alone.parts[0])
    for row in (0, 2):
        alone = describe_unknown(columns[row], H100)
        assert found.layouts.parts[row, len(PARTS) :] == pytest.approx(alone.parts[0])


def test_where_small_runs_are_to_predict_large_ones_what_each_doubling_adds_is_unknown():
    found = candidates(*({**run(dp=8 * nodes, workload="megatron"), "nodes": nodes} for nodes in (1, 2)))
    causes = [replace(found, by_size=of_size).layouts.causes for of_size in (False, True)]
    added = causes[1][:, causes[0].shape[1] :]
    assert (np.count_nonzero(added[0]), np.count_nonzero(added[1]) > 0) == (0, True)


@pytest.mark.parametrize(("workloads", "of_size", "narrow"), [
    (("megatron", "nanotron"), True, True), (("megatron", "nanotron"), False, False),
    (("megatron", "somebody"), True, False),
])  # fmt: skip
def test_spreads_are_narrower_where_small_runs_of_known_trainers_alone_predict_large_ones(workloads, of_size, narrow):
    found = replace(candidates(*(run(dp=8, workload=name) for name in workloads)), by_size=of_size)
    assert found.scales == (Scales.small(found.kernel.variances) if narrow else Scales())


def test_joined_candidates_are_the_first_then_the_second():
    grid, measured = (
        candidates(run(dp=8), {**run(dp=8), "nodes": 2}),
        candidates({**run(dp=8, mbs=2), "nodes": 2}, gpu=GPUS["a100"]),
    )
    measured = replace(measured, columns={**measured.columns, "further": np.array([7])})
    both = joined_candidates(grid, measured)
    assert len(both) == 3
    assert both.cell_names == (("1B", 1), ("1B", 2))
    assert both.cells.tolist() == [0, 1, 1]
    assert both.columns["micro_batch_size"].tolist() == [1, 1, 2]
    assert both.columns["further"].tolist() == [0, 0, 7]
    assert both.gpu is H100


def test_parameters_in_another_order_are_of_the_same_kind():
    given = [run(fused=True, width=1), run(width=1, fused=True), run(width=2, fused=True)]
    first, second, third = made_candidates(given).kinds
    assert first == second != third
