"""What each axis sends and how long it takes: volumes of the papers, times that fall and rise as they must."""

import numpy as np
import pytest

from sweep.physics import communication as c
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.physics.profiles import PROFILES

H100, NET = GPUS["h100"], c.Network()
QUIET = c.Network(inside_latency_s=0, between_latency_s=0, reduce_share=1, gather_share=1, congestion=0)


def columns(model="8B", **layout):
    return MODELS[model].as_dict() | {"sequence_length": 4096, "gpus_per_node": 8} | layout


def test_a_ring_moves_n_minus_one_nths():
    """All-gather of b bytes over n ranks: (n-1)/n b at the link's speed in one direction; all-reduce twice that."""
    gather = c.collective_s(9e9, 8, 1, H100, QUIET)
    assert gather == pytest.approx(9e9 * 7 / 8 / 450e9)
    assert c.collective_s(9e9, 8, 1, H100, QUIET, kind="reduce") == pytest.approx(2 * gather)
    assert c.collective_s(9e9, 1, 1, H100, NET) == 0


def test_between_nodes_the_network_binds_and_every_gpu_carries_its_part():
    whole_nodes = c.collective_s(9e9, 16, 2, H100, QUIET)
    assert whole_nodes == pytest.approx(9e9 * 15 / 16 / 8 / 50e9)
    one_per_node = c.collective_s(9e9, 16, 16, H100, QUIET)
    assert one_per_node == pytest.approx(9e9 * 15 / 16 / 50e9)


def test_many_ranks_take_the_tree():
    """A tree's latency grows with the logarithm, a ring's with the number of nodes."""
    tiny = [float(c.collective_s(1.0, 8 * n, n, H100, NET)) for n in (2, 64, 1024)]
    assert tiny[1] < 16 * tiny[0]
    assert tiny[2] < 2 * tiny[1]


def test_published_bandwidths_of_one_and_two_nodes():
    """Ultra-Scale Playbook, 256 MB: all-reduce 436 and 362 GB/s of bus bandwidth, all-gather 250 and 185."""
    size = 256e6
    for kind, wanted in (("reduce", (436, 362)), ("gather", (250, 185))):
        for nodes, expected in zip((1, 2), wanted, strict=True):
            ranks = 8 * nodes
            factor = (2 if kind == "reduce" else 1) * (ranks - 1) / ranks
            seconds = c.collective_s(size, ranks, nodes, H100, NET, kind=kind)
            assert factor * size / seconds / 1e9 == pytest.approx(expected, rel=0.35)


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


def test_tensor_parallel_volume_does_not_depend_on_its_width_but_its_time_on_the_node():
    two, eight = (float(c.tensor_bytes(columns(tp=tp))) for tp in (2, 8))
    assert two == eight > 0
    assert c.tensor_bytes(columns(tp=1)) == 0
    times = [float(c.tensor_s(columns(tp=tp), H100, NET)) for tp in (1, 2, 8, 16)]
    assert times == sorted(times)
    assert times[3] > 1.3 * times[2]


def test_zero_volume_is_that_of_its_paper():
    """arXiv 1910.02054 sec. 7: stages 1 and 2 move what stage 0 does, stage 3 half as much again."""
    half = PROFILES["paper"]
    total = {}
    for zero in (0, 1, 2, 3):
        moved = c.data_parallel(columns(dp=8, zero=zero), H100, QUIET, half)
        total[zero] = float(moved.gradients_s + moved.weights_s)
    assert total[1] == pytest.approx(total[0])
    assert total[2] == pytest.approx(total[0])
    assert total[3] == pytest.approx(1.5 * total[0])
    four = c.data_parallel(columns(dp=8, zero=3, grad_accum=4), H100, QUIET, half)
    assert float(four.weights_s) == pytest.approx(
        4 * float(c.data_parallel(columns(dp=8, zero=3), H100, QUIET, half).weights_s)
    )


def test_an_axis_of_width_one_sends_nothing():
    alone = columns(dp=1, tp=1, pp=1, cp=1, ep=1)
    data = c.data_parallel(alone, H100, NET)
    others = (c.tensor_s, c.pipeline_s, c.context_s, c.expert_s)
    assert [float(data.gradients_s), float(data.weights_s), *(float(f(alone, H100, NET)) for f in others)] == [0] * 6


def test_experts_and_context_send_when_they_are_spread():
    assert c.expert_s(columns("Mixtral-8x7B", ep=8, dp=8), H100, NET) > 0
    near = c.context_s(columns(cp=4, sequence_length=65536), H100, NET)
    far = c.context_s(columns(cp=16, sequence_length=65536), H100, NET)
    assert 0 < near < far


def test_numbers_and_arrays_give_equal_results():
    many = columns(tp=np.array([1, 2, 16]), dp=np.array([8, 4, 2]))
    for function in (c.tensor_s, c.pipeline_s, c.context_s):
        found = np.broadcast_to(function(many, H100, NET), 3)
        for i in range(3):
            one = columns(tp=int(many["tp"][i]), dp=int(many["dp"][i]))
            assert function(one, H100, NET) == pytest.approx(found[i])
