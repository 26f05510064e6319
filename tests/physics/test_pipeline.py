"""What each rank of a pipeline holds, how long it waits, and its layers, against plain loops."""

import itertools
import math

import numpy as np
import pytest

from bench_workloads.transformer.stages import layers_of_stages, stages_of_rank
from sweep.physics import pipeline
from sweep.physics.catalogue import MODELS
from sweep.physics.schedules import LOOPED, SCHEDULES, V_SCHEDULES
from sweep.physics.shapes import ModelShape, input_embedding_parameters, matmul_parameters

SIZES = [(pp, micro_batches) for pp in (1, 2, 3, 4, 8) for micro_batches in (1, 2, 5, 8, 32)]


def columns(pp, micro_batches, schedule, virtual_stages=3):
    return {"pp": pp, "grad_accum": micro_batches, "pp_schedule": schedule, "virtual_stages": virtual_stages}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_first_rank_embeds_and_the_last_has_the_output_which_a_v_brings_back_to_the_first(schedule):
    back = schedule in V_SCHEDULES
    for pp in (1, 2, 3, 4):
        one = columns(pp, 8, schedule)
        output = [bool(pipeline.has_output(one, stage)) for stage in pipeline.STAGES]
        assert output == [pp == 1 or back, False, pp == 1 or not back]
        assert [bool(pipeline.has_embedding(one, stage)) for stage in pipeline.STAGES] == [True, False, pp == 1]
        assert [bool(pipeline.exists(one, stage)) for stage in pipeline.STAGES] == [True, pp >= 3, pp >= 2]


def stored(pp, micro_batches, schedule, rank, chunks):
    """Micro-batches whose activations a rank holds at most, by the schedules' papers."""
    held = {
        "gpipe": micro_batches, "looped_bfs": micro_batches, "zbv_zero_bubble": pp, "dualpipev": pp + 0.5,
        "interleaved_1f1b": (2 * (pp - rank - 1) + (chunks - 1) * pp + 1) / chunks,
        "interleaved_zero_bubble": (2 * (pp - rank - 1) + (chunks - 1) * pp + 1) / chunks,
    }.get(schedule, pp - rank)  # fmt: skip
    return 1.0 if pp == 1 else min(held, micro_batches)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("chunks", [2, 3])
def test_a_rank_stores_as_many_micro_batches_as_its_schedule_has_in_flight(schedule, chunks):
    for pp, micro_batches in SIZES:
        one = columns(pp, micro_batches, schedule, chunks)
        ranks = {"first": 0, "middle": min(1, pp - 1), "last": pp - 1}
        for stage, rank in ranks.items():
            wanted = stored(pp, micro_batches, schedule, rank, chunks)
            assert pipeline.in_flight(one, stage) == pytest.approx(wanted), (pp, micro_batches, stage)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_pipeline_idles_for_its_stages_less_one_over_its_micro_batches(schedule):
    for (pp, micro_batches), chunks in itertools.product(SIZES, (2, 3)):
        plain = (pp - 1) / micro_batches
        part = {"interleaved_zero_bubble": 1 / 3 / chunks, "zbv_zero_bubble": 1 / 12, "dualpipev": 1 / 6}
        share = part.get(schedule, 1 / chunks if schedule in LOOPED else 1)
        assert pipeline.bubble_fraction(columns(pp, micro_batches, schedule, chunks)) == pytest.approx(plain * share)
    assert pipeline.bubble_fraction(columns(4, 0, "1f1b")) == 3.0, "a step has one micro-batch at least"


@pytest.mark.parametrize("depth", [1, 5, 8, 12, 13])
def test_layers_are_as_equal_as_possible_and_more_in_earlier_stages(depth):
    shape = MODELS["1B"].__class__(**MODELS["1B"].as_dict() | {"num_layers": depth})
    for pp in range(1, depth + 1):
        parts = [len(part) for part in np.array_split(np.arange(depth), pp)]
        assert pipeline.layers({"pp": pp}, shape, "first") == parts[0]
        assert pp < 2 or pipeline.layers({"pp": pp}, shape, "last") == parts[-1]
        assert pp < 3 or pipeline.layers({"pp": pp}, shape, "middle") == max(parts[1:-1])


@pytest.mark.parametrize("model", ["1B", "8B", "70B"])
def test_by_cost_a_stage_takes_layers_until_its_share_with_the_output_projection_is_passed(model):
    shape = MODELS[model]
    depth = shape.num_layers
    for pp in (1, 2, 3, 4, 5, 8):
        share = float(pipeline.cost_share(float(pp), float(depth), shape))
        ends = [0]
        for rank in range(1, pp + 1):
            taken = next(n for n in itertools.count() if n > share * rank + 1e-9)  # a layer costs 1
            ends.append(min(depth, max(taken, rank)))
        with_output = next(rank for rank in range(pp) if share * (rank + 1) >= depth - 1e-6)
        found = {stage: float(pipeline.layers({"pp": pp}, shape, stage, "cost")) for stage in pipeline.STAGES}
        if pp == 1:
            assert (found["first"], found["last"]) == (depth, depth)
            continue
        assert found["first"] == ends[1]
        assert found["middle"] == max(ends[2] - ends[1], 1)
        assert found["last"] == depth - ends[with_output]


def test_a_share_of_the_cost_is_that_of_all_layers_and_the_output_projection_in_layers():
    shape = MODELS["1B"]
    hidden, intermediate = shape.hidden_size, shape.intermediate_size
    attention = 2 * hidden * (shape.num_heads + shape.num_kv_heads) * shape.head_dim
    layer = attention + 3 * hidden * intermediate
    wanted = (shape.num_layers + hidden * shape.vocab_size / layer) / 4
    assert float(pipeline.cost_share(4.0, float(shape.num_layers), shape)) == pytest.approx(wanted, rel=1e-9)
    assert math.isfinite(wanted)


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
