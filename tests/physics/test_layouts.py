"""All layouts of a model on a number of GPUs, against their definition; and the fastest of them."""

import itertools

import numpy as np
import pytest

from sweep.physics import memory
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.physics.layouts import AXES, divisors, layouts_on
from sweep.physics.prediction import describe
from sweep.physics.profiles import PROFILES
from sweep.physics.sizing import fastest_layout

TINY, MIXTURE, H100 = MODELS["tiny-1M"], MODELS["tiny-moe"], GPUS["h100"]


def found_on(shape, gpus, **more):
    given = {"gpus_per_node": 4, "sequence_length": 64, "global_batch_tokens": 1024} | more
    columns = layouts_on(shape, gpus, **given)
    return {tuple(row) for row in zip(*(columns[axis].tolist() for axis in AXES), strict=True)}


def possible(shape, gpus, *, cps=(1,), tokens=1024, stages):
    """By trying everything: dp tp pp cp = gpus, tp within the node of 4 and the heads, a batch that is large enough."""
    numbers = range(1, gpus + 1)
    for tp, pp, cp, dp in itertools.product((1, 2, 3, 4), numbers, cps, numbers):
        if tp * pp * cp * dp != gpus or shape.num_heads % tp or pp > stages:
            continue
        eps = [e for e in range(1, 9) if shape.num_experts % e == 0 and dp * cp * tp % e == 0]
        for ep, zero, micro in itertools.product(eps if shape.num_experts else [1], range(4), (1, 2, 4, 8, 16, 32, 64)):
            steps = tokens // (dp * micro * 64)
            if steps < max(1, pp - 1) or (zero and dp * cp == 1):
                continue
            for recompute in ("none", "selective", "full"):
                yield tp, pp, cp, ep, zero, micro, recompute, dp, steps


@pytest.mark.parametrize("gpus", [1, 2, 4, 6, 8])
def test_layouts_are_all_that_their_definition_allows(gpus):
    assert found_on(TINY, gpus) == set(possible(TINY, gpus, stages=4))


def test_experts_divide_the_ranks_of_a_stage():
    assert found_on(MIXTURE, 8) == set(possible(MIXTURE, 8, stages=4))


def test_context_parallel_widths_are_tried_where_asked_and_a_profile_may_have_further_stages():
    asked = {"asked": {"cp": [1, 2]}, "stages_beyond_layers": 2}
    found = found_on(TINY, 6, **asked)
    assert found == set(possible(TINY, 6, cps=(1, 2), stages=6))
    assert max(row[AXES.index("pp")] for row in found) == 6


@pytest.mark.parametrize(
    ("number", "wanted"), [(1, (1,)), (12, (1, 2, 3, 4, 6, 12)), (16, (1, 2, 4, 8, 16)), (7, (1, 7))]
)
def test_divisors(number, wanted):
    assert divisors(number) == wanted


GIVEN = {"gpus_per_node": 8, "sequence_length": 4096, "global_batch_tokens": 1 << 20}


def test_the_fastest_layout_is_the_one_of_most_predicted_tokens_among_those_that_fit():
    shape, profile = MODELS["8B"], PROFILES["megatron"]
    found = fastest_layout(shape, H100, 16, profile, **GIVEN)
    assert found is not None
    columns = layouts_on(shape, 16, **GIVEN)
    described = describe(columns, H100, profile)
    median, sd = described.log_median, described.prior_sd
    tokens = columns["dp"] * columns["micro_batch_size"] * columns["grad_accum"] * 4096
    speed = np.where(memory.fits(columns, H100, profile).fits, tokens / 16 / np.exp(median), 0.0)
    best = int(np.argmax(speed))
    assert found.tokens_per_second_per_gpu == pytest.approx(speed[best])
    assert found.layout == {axis: columns[axis][best] for axis in AXES}
    assert found.layout["dp"] * found.layout["tp"] * found.layout["pp"] * found.layout["cp"] == 16
    within = 1.645 * sd[best]  # 90 % of a normal distribution
    assert (found.low, found.high) == pytest.approx((speed[best] * np.exp(-within), speed[best] * np.exp(within)))


def test_no_layout_is_fastest_where_none_fits_or_none_is_possible():
    assert fastest_layout(MODELS["Llama-3.1-405B"], H100, 1, PROFILES["megatron"], **GIVEN) is None
    short = GIVEN | {"global_batch_tokens": 4095}
    assert fastest_layout(MODELS["8B"], H100, 8, PROFILES["megatron"], **short) is None
