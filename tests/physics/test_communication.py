"""Collectives against published bandwidths, volumes and measured ones; each axis of a layout: test_anchors."""

from dataclasses import replace

import pytest

from sweep.physics import communication as c
from sweep.physics import constants, data_parallel
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.physics.machine import Machine
from sweep.physics.measured import MeasuredCollective, MeasuredRates
from sweep.physics.profiles import PROFILES
from sweep.physics.trainers import Behaviour

H100 = Machine(gpu=GPUS["h100"])


def columns(model="8B", **layout):
    return MODELS[model].as_dict() | {"sequence_length": 4096, "gpus_per_node": 8, "dtype": "bf16"} | layout


def seconds(size, ranks, nodes, machine=H100, **given):
    return float(c.collective_s({}, size, float(ranks), float(nodes), machine, **given))


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
    assert float(four[1]) == pytest.approx(4 * float(moved(zero=3)[1])), "of weights"


def measured(*found):
    return replace(H100, gpu=replace(H100.gpu, measured=MeasuredRates(collectives=found)))


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


@pytest.mark.parametrize(("layout", "across"), [({"cp": 8}, False), ({"cp": 2, "tp": 8}, True), ({"cp": 9}, True)])
def test_a_step_of_a_ring_takes_its_latency_and_the_links_rate_where_its_groups_are(layout, across):
    layout, step = columns(**layout), constants.BETWEEN_STEP_S if across else constants.INSIDE_STEP_S
    empty, full = (float(c.ring_step_s(layout, size, "cp", H100)) for size in (0.0, 1e9))
    inside = H100.inside_group_bytes_per_s(2) * constants.INSIDE_GATHER.median
    between = H100.between_bytes_per_s(layout, "cp") * H100.between_share.median
    assert empty == pytest.approx(constants.INSIDE_BASE_S.median + step.median)
    assert full - empty == pytest.approx(1e9 / (between if across else inside))


def test_a_measured_collective_within_a_node_is_predicted_as_measured_large_and_small_ones_apart():
    found = measured(
        MeasuredCollective(kind="all_gather", nodes=1, ranks=8, bytes=1 << 30, seconds=0.02),
        MeasuredCollective(kind="all_gather", nodes=1, ranks=8, bytes=1 << 14, seconds=0.001),
    )
    assert seconds(float(1 << 30), 8, 1, found) == pytest.approx(0.02)
    assert seconds(float(1 << 14), 8, 1, found) == pytest.approx(0.001)
    assert seconds(1e9, 16, 2, found) == seconds(1e9, 16, 2), "between nodes nothing was measured"


@pytest.mark.parametrize(("bytes_", "ratio"), [(1 << 24, 3.0), ((1 << 24) - 1, 7.0)])
def test_from_16_mib_on_a_measured_collective_is_a_large_one(bytes_, ratio):
    """Of a large one its bandwidth is measured, of a smaller one its latency."""
    runs = [
        MeasuredCollective(kind="all_gather", nodes=2, ranks=16, bytes=size, seconds=slow * seconds(float(size), 16, 2))
        for size, slow in ((1 << 24, 3.0), (1 << 20, 7.0))
    ]
    found = measured(*runs)
    assert seconds(float(bytes_), 16, 2, found) == pytest.approx(ratio * seconds(float(bytes_), 16, 2))


def test_between_measured_numbers_of_nodes_the_ratio_to_the_nominal_time_is_interpolated_by_doublings():
    """Twice the nominal time on 2 nodes and eight times on 8: four times on 4. Of several the mean of logarithms."""

    def times(ratio, nodes):
        size = 1 << 30
        found = ratio * seconds(float(size), 8 * nodes, nodes)
        return MeasuredCollective(kind="all_gather", nodes=nodes, ranks=8 * nodes, bytes=size, seconds=found)

    found = measured(times(2, 2), times(4, 8), times(16, 8))
    for nodes, ratio in ((2, 2), (4, 4), (8, 8), (64, 8)):
        size = float(1 << 30)
        assert seconds(size, 8 * nodes, nodes, found) == pytest.approx(ratio * seconds(size, 8 * nodes, nodes))
