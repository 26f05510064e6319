"""Layers of pipeline ranks by the formulas equal those that the workload places."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bench_workloads.transformer.rules import PIPELINE_RULES
from bench_workloads.transformer.settings import Settings
from bench_workloads.transformer.stages import layers_as_asked, layers_of_stages, split_of, stages_of_rank
from sweep.contract import Layout
from sweep.physics import pipeline
from sweep.physics.schedules import SCHEDULES
from sweep.physics.shapes import ModelShape, input_embedding_parameters, matmul_parameters

VOCABULARIES = (1000, 32_000, 128_256, 2_000_000)


def shape_of(layers: int, vocabulary: int) -> ModelShape:
    return ModelShape(num_layers=layers, hidden_size=1024, num_heads=16, intermediate_size=2816, vocab_size=vocabulary)


def placed(shape: ModelShape, pp: int, schedule: str) -> list[int]:
    """Layers of each rank as `build.py` places them."""
    output = input_embedding_parameters(shape)
    load = output * shape.num_layers / (matmul_parameters(shape) - output)
    held = [stages_of_rank(rank, pp, schedule, 2) for rank in range(pp)]
    ranges = layers_of_stages(shape.num_layers, sum(map(len, held)), last=load)
    return [sum(len(ranges[stage]) for stage in stages) for stages in held]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_balanced_layers_are_those_of_the_workload(schedule, vocabulary):
    for layers, pp in itertools.product((4, 16, 28, 31, 32, 80), (1, 2, 3, 4, 8, 16)):
        chunks = 1 if pp == 1 else len(stages_of_rank(0, pp, schedule, 2))
        if pp * chunks > layers:
            continue
        shape = shape_of(layers, vocabulary)
        ranks = [layers] if pp == 1 else placed(shape, pp, schedule)
        columns = {**shape.as_dict(), "pp": pp, "pp_schedule": schedule, "virtual_stages": 2}
        wanted = {"first": ranks[0], "last": ranks[-1]} | ({"middle": ranks[1]} if pp > 2 else {})
        found = {stage: float(pipeline.layers(columns, shape, stage, "balanced")) for stage in wanted}
        assert found == wanted, (layers, pp)


def test_stated_layers_are_taken_rank_by_rank():
    shape = shape_of(32, 128_256)
    columns = {**shape.as_dict(), "pp": np.array([4, 4, 2]), "virtual_stages": 2}
    columns["pp_layers"] = np.array(["9,9,8,6", "auto", "9,8,9,6"], dtype=object)
    columns["pp_schedule"] = np.array(["1f1b", "1f1b", "zbv_zero_bubble"], dtype=object)
    first, middle, last = (pipeline.layers(columns, shape, s, "balanced") for s in ("first", "middle", "last"))
    assert (first[0], middle[0], last[0]) == (9, 9, 6)
    assert (first[2], last[2]) == (15, 17)
    assert first[1] == placed(shape, 4, "1f1b")[0]


def test_a_split_that_does_not_add_up_is_rejected_with_a_reason():
    rule = next(rule for rule in PIPELINE_RULES if rule.name == "pp_layers")
    columns = {**shape_of(32, 1000).as_dict(), **vars(Layout(pp=4)), **Settings.defaults()}
    for text, wrong in (("auto", False), ("9,9,8,6", False), ("9,9,8", True), ("9,9,8,7", True), ("a,b", True)):
        assert bool(rule.broken(columns | {"pp_layers": text})) is wrong, text
    many = np.array(["auto", "8,8,8,8", "32"], dtype=object)
    assert rule.broken(columns | {"pp_layers": many, "pp": np.array([1, 4, 4])}).tolist() == [False, False, True]
    assert "add up to 32" in rule.reason.format(**columns)


def test_layers_as_asked_are_contiguous():
    assert split_of("auto") is None
    assert layers_as_asked(split_of("3,1"), 4, 2) == [range(3), range(3, 4)]
    with pytest.raises(ValueError, match="must be 2 numbers that add up to 5"):
        layers_as_asked([3, 1], 5, 2)
    with pytest.raises(ValueError, match="a layer at least"):
        split_of("4,0")
