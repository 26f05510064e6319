"""Layers of pipeline ranks by the formulas equal those that the workload places."""

import itertools

import pytest

from bench_workloads.transformer.stages import layers_of_stages, stages_of_rank
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
