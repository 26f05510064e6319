"""Amounts of work of a trainer of which nothing is known, counted by hand for single layouts."""

import math
from dataclasses import replace

import numpy as np
import pytest

from sweep.physics import constants
from sweep.physics.catalogue import MODELS
from sweep.physics.flops import model_flops_per_token
from sweep.physics.hardware import GPUS
from sweep.physics.machine import Machine
from sweep.physics.prediction import describe_unknown
from sweep.physics.shapes import active_parameters, total_parameters
from sweep.physics.unknown_trainer import CONGESTION, LEAST_S, LOADINGS, NAMES, NETWORK_PARTS, SPREAD, amounts, causes

H100 = GPUS["h100"]
PEAK, LINK, NETWORK, MEMORY = H100.peak_flops("bf16"), 450e9, 50e9, 3.35e12
"""FLOP/s; bytes/s of a link in one direction, of a GPU's network card, of the memory"""
HOST_S, STEP_S = 1e-3, 2e-2
SHAPE = MODELS["8B"]
BOTH_ENDS = 2 * 131072 * 4096
"""parameters of the token embedding and of the output projection"""


def counted(model="8B", **layout):
    base = {"sequence_length": 4096, "gpus_per_node": 8, "dtype": "bf16", "grad_accum": 8, "recompute": "none"}
    layout = {"nodes": 1} | base | layout
    found = amounts(MODELS[model].as_dict() | layout, Machine(gpu=H100))
    return dict(zip(NAMES, found[0].tolist(), strict=True))


def by_hand(*, tp, pp, dp, cp, zero, gas, micro, recompute, nodes):
    """Scalars, from the volumes of the papers (arXiv 1910.02054, 2205.05198): no axis is hidden behind another."""
    tokens = micro * 4096 / cp
    bubble = 1 + (pp - 1) / gas
    flops = model_flops_per_token(SHAPE, 4096) * (4 / 3 if recompute == "full" else 1)
    work = flops * tokens * gas / (tp * pp) / (0.6 * PEAK) * bubble
    layer_passes = gas * 32 / pp * bubble
    hidden_bytes = 2 * tokens * 4096
    split = 8 * hidden_bytes * layer_passes * ((tp - 1) / tp + (cp - 1) / cp)  # 4 collectives forward, 4 backward
    across = tp * cp > 8
    link = NETWORK if nodes > 1 else LINK
    held = (total_parameters(SHAPE) - BOTH_ENDS) / (tp * pp) + BOTH_ENDS / tp
    copies = dp * cp
    ring = 2 * held * (copies - 1) / copies / link  # a reduce-scatter of bf16
    gathers = {0: 0, 1: 1, 2: 1, 3: 2 * gas}[zero]
    return {
        "work": work,
        "few_rows": work * 400 / tokens,
        "narrow": work * 350 * tp / 4096,
        "launch": HOST_S * layer_passes,
        "tp_inside": 0.0 if across else split / LINK,
        "tp_across": split / NETWORK if across else 0.0,
        "tp_across_latency": HOST_S * layer_passes if across else 0.0,
        # Activations there and gradients back, in bf16, for each micro-batch
        "pipeline_sends": 2 * hidden_bytes * gas / tp / link * bubble if pp > 1 else 0.0,
        "gradients": 2 * ring,
        "gradients_each": 0.2 * ring * gas,
        "pipeline_latency": 4 * HOST_S * (gas + pp - 1) if pp > 1 else 0.0,
        "micro_batch_latency": HOST_S * gas,
        "nodes": STEP_S / 2 * math.log2(nodes),
        "optimizer": 12 * held / (copies if zero else 1) / (MEMORY * constants.MEMORY_SHARE.median),
        "sharding": gathers * ring,
        "fixed": STEP_S,
    }


@pytest.mark.parametrize(
    ("tp", "pp", "dp", "cp", "zero", "gas", "micro", "recompute", "nodes"),
    [
        (1, 1, 8, 1, 0, 8, 1, "none", 1),
        (4, 1, 2, 1, 1, 8, 2, "none", 1),
        (8, 1, 1, 1, 0, 8, 2, "selective", 1),
        (2, 4, 1, 1, 0, 16, 4, "full", 1),
        (4, 2, 3, 4, 2, 4, 1, "none", 12),
        (8, 4, 2, 2, 3, 8, 2, "full", 16),
        (1, 1, 16, 8, 3, 2, 1, "none", 16),
        (1, 4, 2, 1, 1, 1, 1, "none", 1),
        (8, 2, 1, 1, 0, 1, 1, "full", 2),
    ],
)
def test_each_part_is_the_volume_of_its_paper(tp, pp, dp, cp, zero, gas, micro, recompute, nodes):
    layout = {"tp": tp, "pp": pp, "dp": dp, "cp": cp, "zero": zero, "recompute": recompute, "nodes": nodes}
    wanted = by_hand(**layout, gas=gas, micro=micro)
    found = counted(**layout, grad_accum=gas, micro_batch_size=micro)
    assert found == pytest.approx({name: max(seconds, LEAST_S) for name, seconds in wanted.items()}, rel=1e-6)


def test_of_a_mixture_only_the_active_share_of_the_weights_is_gathered_layer_by_layer():
    mixture = MODELS["Mixtral-8x7B"]
    found = counted("Mixtral-8x7B", dp=8, zero=1)
    assert found["sharding"] == pytest.approx(
        found["gradients"] / 2 * active_parameters(mixture) / total_parameters(mixture)
    )


def test_a_part_that_a_layout_lacks_is_as_good_as_nothing_and_never_zero():
    assert {name for name, seconds in counted(dp=1, gpus_per_node=1).items() if seconds == LEAST_S} == {
        *("tp_inside", "tp_across", "tp_across_latency", "pipeline_sends", "pipeline_latency"),
        *("gradients", "gradients_each", "nodes", "sharding"),
    }


def test_a_layout_in_columns_is_counted_as_one_alone():
    columns = SHAPE.as_dict() | {"sequence_length": 4096, "gpus_per_node": 8, "dtype": "bf16"}
    many = {"tp": np.array([1, 4]), "dp": np.array([8, 2]), "zero": np.array([0, 3]), "grad_accum": 8}
    layouts = describe_unknown(columns | many | {"recompute": "none", "nodes": 1}, H100)
    for row, (tp, dp, zero) in enumerate(((1, 8, 0), (4, 2, 3))):
        assert layouts.parts[row] == pytest.approx([*counted(tp=tp, dp=dp, zero=zero).values()])
    assert (layouts.spreads == 1.0).all(), "every factor is as good as unknown"
    assert not layouts.factors.any()


def test_a_layout_of_no_micro_batch_waits_for_its_pipeline_once():
    """What a plan rejects is still predicted: 1 + (pp - 1) / 1 for the bubble, and no division by zero."""
    with np.errstate(divide="raise", invalid="raise"):
        found = counted(pp=4, grad_accum=0)
    assert found["pipeline_latency"] == pytest.approx(4 * HOST_S * (0 + 4 - 1))
    assert found["work"] == LEAST_S


def test_the_networks_rate_is_one_uncertain_factor_of_all_parts_that_cross_it():
    """Where nothing states it; it falls by an uncertain power of the nodes, beginning with two."""
    columns = {"nodes": np.array([1, 2, 4, 64])}
    unstated = Machine(gpu=replace(H100, network_bytes_per_s=None))
    rate, falls = causes(columns, unstated).T
    assert rate.tolist() == [0.0, SPREAD, SPREAD, SPREAD]  # one node has no network
    assert falls.tolist() == pytest.approx([0.0, 0.0, CONGESTION, 5 * CONGESTION])
    stated = Machine(gpu=replace(H100, network_bytes_per_s=50e9))
    assert causes(columns, stated)[1, 0] == stated.collective_spread() < SPREAD
    assert causes(columns | {"network_bytes_per_s": np.full(4, 50e9)}, unstated)[1, 0] == unstated.collective_spread()
    for name, shares in zip(NAMES, LOADINGS.tolist(), strict=True):
        assert shares == ([1.0, 1.0] if name in NETWORK_PARTS else [0.0, 0.0])


def test_the_published_all_reduce_falls_by_the_stated_power_of_the_nodes():
    """The Ultra-Scale Playbook's measurements: 361.7 GB/s on 2 nodes, 64.9 on 64."""
    assert pytest.approx(math.log(361.7 / 64.9) / 5, abs=0.01) == CONGESTION
