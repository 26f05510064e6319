"""Context parallelism: what is passed, what attention hides of it, what merging costs, and which kernel runs."""

from dataclasses import replace

import pytest

from sweep.physics import communication, constants, context, kernels
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.physics.kernels import Passes
from sweep.physics.machine import Machine
from sweep.physics.profiles import PROFILES
from sweep.physics.trainers import TRAINERS

H100 = Machine(gpu=GPUS["h100"])
OURS, MEGATRON, TITAN = (TRAINERS[name] for name in ("builtin", "megatron", "torchtitan"))
NOTHING, MUCH = Passes(0.0, 0.0), Passes(1e3, 1e3)


def columns(model="Llama-3-8B", **layout):
    base = {"sequence_length": 131072, "gpus_per_node": 8, "dtype": "bf16", "tp": 1, "cp": 4}
    return MODELS[model].as_dict() | base | layout


@pytest.mark.parametrize(("tp", "heads"), [(1, 8), (2, 4), (8, 1), (16, 1)])
def test_a_rank_passes_the_keys_and_values_of_its_heads_and_tokens(tp, heads):
    """torchtitan's are repeated for each of 32 query heads."""
    cells = columns(tp=tp)
    assert context.keys_and_values_bytes(cells, MEGATRON) == 2 * 2 * heads * 128 * 32768
    assert context.keys_and_values_bytes(cells, TITAN) == 2 * 2 * 32 / tp * 128 * 32768


def test_without_attention_to_hide_it_a_ring_waits_for_all_it_passes():
    """Forward cp - 1 times the keys and values; backward also their gradients, cp times."""
    send = float(communication.send_bytes_s(columns(), context.keys_and_values_bytes(columns(), MEGATRON), "cp", H100))
    assert context.exposed_s(columns(), H100, MEGATRON, NOTHING) == pytest.approx((3 * send, (2 * 3 + 1) * send))


def test_long_attention_hides_all_but_the_last_gradients_and_is_slowed_down():
    send = float(communication.send_bytes_s(columns(), context.keys_and_values_bytes(columns(), MEGATRON), "cp", H100))
    slowed = constants.COLLECTIVE_SMS.median
    assert context.exposed_s(columns(), H100, MEGATRON, MUCH) == pytest.approx(
        (3 * send * slowed, (6 * slowed + 1) * send)
    )


def test_what_is_gathered_at_once_is_hidden_by_the_first_block_only_and_before_it_by_nothing():
    cells = columns(cp=8)
    size = context.keys_and_values_bytes(cells, OURS) * 8
    gathered = float(communication.collective_s({}, size, 8.0, 1.0, H100))
    assert context.exposed_s(cells, H100, OURS, MUCH) == pytest.approx((gathered, gathered))
    first = replace(TITAN, context_repeats_keys=False)
    part = gathered / 2 * 8
    assert context.exposed_s(cells, H100, first, Passes(part, part)).forward == pytest.approx(
        gathered / 2 * (1 + constants.COLLECTIVE_SMS.median)
    )


def test_a_ring_across_nodes_passes_over_one_network_card():
    long = columns(cp=16, tp=2, sequence_length=1 << 24)
    inside, across = (context.exposed_s(long | {"gpus_per_node": n}, H100, MEGATRON, NOTHING) for n in (32, 8))
    links = 450e9 * constants.INSIDE_GATHER.median / (50e9 * constants.BETWEEN_SHARE.median)
    assert across.forward / inside.forward == pytest.approx(links, rel=0.1)


@pytest.mark.parametrize("trainer", [MEGATRON, TITAN])
def test_each_block_is_merged(trainer):
    elements = 32768 * 32 * 128
    wanted = [bytes_ * elements * 4 / H100.memory_bytes_per_s for bytes_ in trainer.context_merge_bytes]
    assert context.merging_s(columns(), H100, trainer) == pytest.approx(wanted)
    assert context.merging_s(columns(), H100, OURS) == (0, 0)


@pytest.mark.parametrize("trainer", [OURS, MEGATRON, TITAN])
def test_without_context_parallelism_there_is_nothing(trainer):
    alone = columns(cp=1)
    assert context.exposed_s(alone, H100, trainer, MUCH) == (0, 0)
    assert context.merging_s(alone, H100, trainer) == (0, 0)


def test_blocks_of_a_ring_are_as_long_as_a_rank_has_tokens():
    """400 positions at which attention runs at half of its rate count for each block."""
    whole, split = (
        kernels.attention(columns(sequence_length=8192, cp=cp), H100, PROFILES["megatron"], MEGATRON).forward
        for cp in (1, 4)
    )
    assert 4 * split / whole == pytest.approx((1 + 400 / 2048) / (1 + 400 / 8192))


def test_a_column_names_the_attention_kernel():
    named = [
        kernels.attention(columns(attention_kernel=name), H100, PROFILES["megatron"], MEGATRON).forward
        for name in ("cudnn", "flash-2", "no such kernel")
    ]
    assert named[0] == kernels.attention(columns(), H100, PROFILES["megatron"], MEGATRON).forward
    assert named[1] / named[0] == pytest.approx(0.565 / 0.35)
    assert named[2] == named[1]
