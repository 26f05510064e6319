"""Context parallelism: what attention hides, rings across nodes, and which kernel runs; the rest: test_anchors."""

import numpy as np
import pytest

from sweep.physics import communication, constants, context, kernels
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.physics.kernels import Passes
from sweep.physics.machine import Machine
from sweep.physics.profiles import PROFILES
from sweep.physics.trainers import TRAINERS

H100 = Machine(gpu=GPUS["h100"])
MEGATRON = TRAINERS["megatron"]
NOTHING, MUCH = Passes(0.0, 0.0), Passes(1e3, 1e3)


def columns(model="Llama-3-8B", **layout):
    base = {"sequence_length": 131072, "gpus_per_node": 8, "dtype": "bf16", "tp": 1, "cp": 4}
    return MODELS[model].as_dict() | base | layout


def test_long_attention_hides_all_but_the_last_gradients_and_is_slowed_down():
    send = float(communication.ring_step_s(columns(), context.keys_and_values_bytes(columns(), MEGATRON), "cp", H100))
    slowed = constants.COLLECTIVE_SMS.median
    assert context.exposed_s(columns(), H100, MEGATRON, MUCH) == pytest.approx(
        (3 * send * slowed, (6 * slowed + 1) * send)
    )


def test_a_ring_across_nodes_passes_over_one_network_card():
    long = columns(cp=16, tp=2, sequence_length=1 << 24)
    inside, across = (context.exposed_s(long | {"gpus_per_node": n}, H100, MEGATRON, NOTHING) for n in (32, 8))
    links = 450e9 * constants.INSIDE_GATHER.median / (50e9 * constants.BETWEEN_SHARE.median)
    assert across.forward / inside.forward == pytest.approx(links, rel=0.1)


def test_blocks_of_a_ring_are_as_long_as_a_rank_has_tokens():
    """Positions at which attention runs at half of its rate: 400 in the causal block, 150 in the three that mask none,
    whose queries or keys are half as many."""
    whole, split = (
        kernels.attention(columns(sequence_length=8192, cp=cp), H100, PROFILES["megatron"], MEGATRON).forward
        for cp in (1, 4)
    )
    blocks = np.mean([1 + 400 / 2048, *3 * [np.mean([1 + 150 / 2048, 1 + 150 / 1024])]])
    assert 4 * split / whole == pytest.approx(blocks / (1 + 400 / 8192))


def test_a_step_of_a_ring_takes_a_kernel_and_a_step_of_its_links():
    """Between two nodes nccl-tests measured 31 to 34 us (sendrecv_perf on A40, NVIDIA/nccl-tests issue 214)."""
    near, far = (float(communication.ring_step_s(columns(gpus_per_node=n), 0.0, "cp", H100)) for n in (8, 1))
    assert near == constants.INSIDE_BASE_S.median + constants.INSIDE_STEP_S.median
    assert near < far == pytest.approx(32e-6, rel=constants.BETWEEN_STEP_S.spread / 2)
