"""What each axis sends and how long it takes: volumes of the papers, times that fall and rise as they must."""

from dataclasses import replace

import numpy as np
import pytest

from sweep.physics import communication as c
from sweep.physics import constants, data_parallel
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.physics.machine import Machine
from sweep.physics.measured import MeasuredCollective, MeasuredRates
from sweep.physics.profiles import PROFILES
from sweep.physics.trainers import TRAINERS, Behaviour

H100 = Machine(gpu=GPUS["h100"])
HUGE = 9e12
"""bytes so many that latency is nothing"""


def columns(model="8B", **layout):
    return MODELS[model].as_dict() | {"sequence_length": 4096, "gpus_per_node": 8, "dtype": "bf16"} | layout


def seconds(size, ranks, nodes, machine=H100, **given):
    return float(c.collective_s({}, size, float(ranks), float(nodes), machine, **given))


def test_a_ring_moves_n_minus_one_nths():
    """All-gather of b bytes over n ranks: (n-1)/n b at the link's share in one direction; all-reduce twice that."""
    gather = seconds(HUGE, 8, 1)
    assert gather == pytest.approx(HUGE * 7 / 8 / (450e9 * constants.INSIDE_GATHER.median), rel=1e-3)
    reduce = seconds(HUGE, 8, 1, kind="reduce")
    assert reduce == pytest.approx(2 * HUGE * 7 / 8 / (450e9 * constants.INSIDE_REDUCE.median), rel=1e-3)
    assert seconds(HUGE, 1, 1) == 0


def test_between_nodes_the_network_binds_and_every_gpu_carries_its_part():
    slow = replace(H100, gpu=replace(H100.gpu, network_bytes_per_s=10e9))
    each = 10e9 * constants.BETWEEN_SHARE.median
    assert seconds(HUGE, 16, 2, slow) == pytest.approx(HUGE * 15 / 16 / 8 / each, rel=1e-3)
    assert seconds(HUGE, 16, 16, slow) == pytest.approx(HUGE * 15 / 16 / each, rel=1e-3)


def test_many_ranks_take_the_tree():
    """A tree's latency grows with the logarithm, a ring's with the number of nodes."""
    tiny = [seconds(1.0, 8 * n, n, kind="reduce") for n in (2, 64, 1024)]
    assert tiny[1] < 16 * tiny[0]
    assert tiny[2] < 2 * tiny[1]


@pytest.mark.parametrize(("kind", "nodes", "bus"), [
    ("reduce", 1, 436), ("gather", 1, 250), ("gather", 2, 185), ("reduce", 4, 160), ("gather", 8, 69),
    ("reduce", 32, 65),
])  # fmt: skip
def test_bandwidths_that_were_published_for_efa(kind, nodes, bus):
    """Ultra-Scale Playbook, 256 MB on nodes of 8 H100, in GB/s of bus bandwidth; a factor of two is its own spread."""
    size, ranks = 256e6, 8 * nodes
    factor = (2 if kind == "reduce" else 1) * (ranks - 1) / ranks
    found = factor * size / seconds(size, ranks, nodes, replace(H100, network="efa"), kind=kind) / 1e9
    assert bus / 2 < found < 2 * bus


@pytest.mark.parametrize(("axis", "layout", "nodes"), [
    ("tp", {"tp": 8}, 1),
    ("tp", {"tp": 16}, 2),
    ("dp", {"tp": 8, "dp": 4}, 4),
    ("dp", {"tp": 1, "dp": 4}, 1),
    ("dp", {"tp": 2, "dp": 8}, 2),
    ("cp", {"tp": 8, "cp": 2}, 2),
    ("pp", {"tp": 8, "dp": 2, "pp": 4}, 4),
])  # fmt: skip
def test_nodes_that_an_axis_spans(axis, layout, nodes):
    assert c.axis_nodes(columns(**layout), axis) == nodes


def test_tensor_parallelism_takes_longer_the_wider_it_is_and_much_longer_across_nodes():
    times = [float(c.tensor_s(columns(tp=tp), H100)) for tp in (1, 2, 8, 16)]
    assert times == sorted(times)
    assert times[0] == 0
    assert times[3] > 1.3 * times[2]


def test_all_reduces_move_as_much_as_gathers_and_scatters():
    """arXiv 2205.05198 sec. 4.2.2: sequence parallelism changes the collectives, not their volume."""
    even = replace(H100, gpu=replace(H100.gpu, link_bytes_per_s=9e9))
    split, whole = (float(c.tensor_s(columns(tp=8), even, sequence_parallel=one)) for one in (True, False))
    ratio = constants.INSIDE_GATHER.median / constants.INSIDE_REDUCE.median
    assert whole == pytest.approx(split * ratio, rel=0.02)


def test_zero_volume_is_that_of_its_paper():
    """arXiv 1910.02054 sec. 7: stages 1 and 2 move what stage 0 does, stage 3 half as much again."""
    even = replace(H100, gpu=replace(H100.gpu, link_bytes_per_s=9e7))
    same = Behaviour(bucket_bytes=1e15, gradient_comm_bytes=2.0)
    share = constants.INSIDE_REDUCE.median / constants.INSIDE_GATHER.median

    def moved(**layout):
        return data_parallel.sent(columns(dp=8, **layout), even, PROFILES["paper"], same)

    total = {zero: float(sum(moved(zero=zero)[:2])) for zero in (0, 1, 2, 3)}
    assert total[1] == pytest.approx(total[0] * share, rel=0.01)
    assert total[2] == pytest.approx(total[1], rel=0.01)
    assert total[3] == pytest.approx(1.5 * total[1], rel=0.01)
    four = moved(zero=3, grad_accum=4)
    assert float(four.weights_s) == pytest.approx(4 * float(moved(zero=3).weights_s))


def test_fully_sharded_weights_are_gathered_once_per_step_under_a_pipeline():
    """torchtitan keeps them gathered between micro-batches, as the memory model says."""
    titan = PROFILES["torchtitan"], TRAINERS["torchtitan"]

    def gathered(**layout):
        return float(data_parallel.sent(columns(dp=8, zero=3, **layout), H100, *titan).weights_s)

    assert gathered(pp=4, grad_accum=32) == pytest.approx(gathered(pp=4, grad_accum=8))
    assert gathered(grad_accum=32) == pytest.approx(4 * gathered(grad_accum=8))


def test_an_axis_of_width_one_sends_nothing():
    alone = columns(dp=1, tp=1, pp=1, cp=1, ep=1)
    data = data_parallel.sent(alone, H100, PROFILES["ours"], TRAINERS["ours"])
    others = (c.tensor_s, c.context_s, c.expert_s)
    assert [*map(float, data), float(c.sends(alone)), *(float(f(alone, H100)) for f in others)] == [0] * 7


def test_experts_and_context_send_when_they_are_spread():
    assert c.expert_s(columns("Mixtral-8x7B", ep=8, dp=8), H100) > 0
    near = c.context_s(columns(cp=4, sequence_length=65536), H100)
    far = c.context_s(columns(cp=16, sequence_length=65536), H100)
    assert 0 < near < far


def test_numbers_and_arrays_give_equal_results():
    many = columns(tp=np.array([1, 2, 16]), dp=np.array([8, 4, 2]))
    for function in (c.tensor_s, c.send_s, c.context_s):
        found = np.broadcast_to(function(many, H100), 3)
        for i in range(3):
            one = columns(tp=int(many["tp"][i]), dp=int(many["dp"][i]))
            assert function(one, H100) == pytest.approx(found[i])


def measured(*found):
    return replace(H100, gpu=replace(H100.gpu, measured=MeasuredRates(collectives=found)))


def test_a_measured_collective_is_predicted_as_measured():
    slow = MeasuredCollective(kind="all_reduce", nodes=4, ranks=32, bytes=1 << 28, seconds=0.025)
    machine = measured(slow)
    assert seconds(float(1 << 28), 32, 4, machine, kind="reduce") == pytest.approx(0.025)
    inside = seconds(1e9, 8, 1, kind="reduce")
    assert seconds(1e9, 8, 1, machine, kind="reduce") == inside, "within a node nothing was measured"
    assert seconds(1e9, 32, 4, machine) > 3 * seconds(1e9, 32, 4), "other kinds of collective share the network"


def test_large_and_small_collectives_are_measured_apart_and_node_counts_interpolated():
    found = measured(
        MeasuredCollective(kind="all_gather", nodes=2, ranks=16, bytes=1 << 30, seconds=0.004),
        MeasuredCollective(kind="all_gather", nodes=8, ranks=64, bytes=1 << 30, seconds=0.016),
        MeasuredCollective(kind="all_gather", nodes=2, ranks=16, bytes=1 << 14, seconds=0.010),
    )
    large = [seconds(float(1 << 30), 8 * n, n, found) for n in (2, 4, 8, 16)]
    assert large[0] == pytest.approx(0.004)
    assert large[0] < large[1] < large[2] == pytest.approx(0.016)
    assert large[2] < large[3]
    assert seconds(float(1 << 14), 16, 2, found) == pytest.approx(0.010)


def test_one_rank_copies_no_slices_of_sharded_tensors():
    """It keeps whole tensors; from two ranks on, the host copies one slice of each tensor for each rank."""
    behaviour = Behaviour(layer_tensors=9, shard_operations=2)
    alone, pair = (data_parallel.host_s(columns(dp=dp, cp=1, pp=2, zero=1), behaviour) for dp in (1, 2))
    assert alone == 0
    assert pair == pytest.approx(9 * MODELS["8B"].num_layers / 2 * 2 * 2 * constants.LAUNCH_S.median)
    assert data_parallel.host_s(columns(dp=2, cp=1, pp=2, zero=0), behaviour) == 0


def test_a_send_between_nodes_is_as_slow_as_gathers_between_two_nodes_were_measured():
    """The measured gather takes three times the predicted time; within a node nothing was measured."""
    layout = columns(pp=4, tp=8, dp=1, cp=1, ep=1, micro_batch_size=1, grad_accum=4)
    size = float(c.activation_bytes(layout)) / 8
    slow = MeasuredCollective(kind="all_gather", nodes=2, ranks=16, bytes=int(size), seconds=3 * seconds(size, 16, 2))
    assert float(c.send_s(layout, measured(slow))) == pytest.approx(3 * float(c.send_s(layout, H100)), rel=1e-6)
    inside = layout | {"tp": 1, "pp": 2}
    assert float(c.send_s(inside, measured(slow))) == float(c.send_s(inside, H100))


def test_a_stage_waits_for_a_send_each_way_per_chunk_and_micro_batch_and_for_those_of_its_start():
    plain = columns(pp=4, grad_accum=6, pp_schedule="1f1b", virtual_stages=2)
    assert c.sends(plain) == 2 * (6 + 3)
    assert c.sends(plain | {"pp_schedule": "interleaved_1f1b"}) == 2 * 2 * (6 + 3 / 2)
    assert c.sends(plain | {"pp": 1}) == 0
