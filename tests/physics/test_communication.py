"""What each axis sends and how long it takes: volumes of the papers, times that fall and rise as they must."""

from dataclasses import replace

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


def test_between_nodes_the_network_binds_and_every_gpu_carries_its_part():
    slow = replace(H100, gpu=replace(H100.gpu, network_bytes_per_s=10e9))
    each = 10e9 * constants.BETWEEN_SHARE.median
    assert seconds(HUGE, 16, 2, slow) == pytest.approx(HUGE * 15 / 16 / 8 / each, rel=1e-3)
    assert seconds(HUGE, 16, 16, slow) == pytest.approx(HUGE * 15 / 16 / each, rel=1e-3)


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
    data = data_parallel.sent(alone, H100, PROFILES["builtin"], TRAINERS["builtin"])
    assert [*map(float, data), float(c.sends(alone)), float(c.tensor_s(alone, H100))] == [0] * 5


def measured(*found):
    return replace(H100, gpu=replace(H100.gpu, measured=MeasuredRates(collectives=found)))


def test_a_measured_collective_is_predicted_as_measured():
    slow = MeasuredCollective(kind="all_reduce", nodes=4, ranks=32, bytes=1 << 28, seconds=0.025)
    machine = measured(slow)
    assert seconds(float(1 << 28), 32, 4, machine, kind="reduce") == pytest.approx(0.025)
    inside = seconds(1e9, 8, 1, kind="reduce")
    assert seconds(1e9, 8, 1, machine, kind="reduce") == inside, "within a node nothing was measured"
    assert seconds(1e9, 32, 4, machine) > 3 * seconds(1e9, 32, 4), "other kinds of collective share the network"


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


def test_calls_share_the_bytes_and_each_has_its_latency():
    base, step = constants.INSIDE_BASE_S.median, constants.INSIDE_STEP_S.median
    wire = HUGE * 7 / 8 / (450e9 * constants.INSIDE_GATHER.median)
    assert seconds(HUGE, 8, 1, calls=1000) == pytest.approx(wire + 1000 * (base + 7 * step))
    assert seconds(0.0, 8, 1) == pytest.approx(base + 7 * step)
    assert seconds(0.0, 8, 1, kind="reduce") == pytest.approx(base + 2 * 7 * step)


def test_latency_of_rings_and_trees_between_nodes():
    """A ring has a step per rank, some over the network; a tree twice the doublings of ranks and of nodes."""
    base, step, hop = (
        one.median for one in (constants.INSIDE_BASE_S, constants.INSIDE_STEP_S, constants.BETWEEN_STEP_S)
    )
    assert seconds(0.0, 32, 4) == pytest.approx(base + 28 * step + 3 * hop)
    assert seconds(0.0, 4, 4, kind="reduce") == pytest.approx(base + 2 * min(3 * hop, 2 * 2 * hop))
    assert seconds(0.0, 512, 64, kind="reduce") == pytest.approx(base + 2 * 2 * (3 * step + 6 * hop))
    efa = replace(H100, network="efa")
    assert seconds(0.0, 32, 4, efa) == pytest.approx(base + 31 * constants.EFA_GATHER_STEP_S.median)
    assert seconds(0.0, 32, 4, efa, kind="reduce") == pytest.approx(base + 2 * 31 * constants.EFA_REDUCE_STEP_S.median)


def test_a_layer_gathers_and_scatters_its_activations_twice():
    """arXiv 2205.05198 sec. 4.2.2: two of each a layer's forward, of s b h elements of two bytes."""
    size = 2 * 4096 * 4096
    assert c.activation_bytes(columns()) == size
    assert c.activation_bytes(columns(cp=4, micro_batch_size=2)) == size / 2
    assert float(c.tensor_s(columns(tp=8), H100)) == pytest.approx(4 * seconds(size, 8, 1))
    both = float(c.tensor_s(columns(tp=8), H100, sequence_parallel=False))
    assert both == pytest.approx(2 * seconds(size, 8, 1, kind="reduce"))


def test_a_send_passes_a_ranks_part_of_the_activations_over_the_link_or_the_network():
    size, wait = 2 * 4096 * 4096 / 2, constants.SEND_S.median
    inside, across = columns(tp=2, pp=2), columns(tp=2, pp=2, dp=8)
    assert float(c.send_s(inside, H100)) == pytest.approx(size / (450e9 * constants.INSIDE_GATHER.median) + wait)
    assert float(c.send_s(across, H100)) == pytest.approx(size / (50e9 * constants.BETWEEN_SHARE.median) + wait)
    efa = replace(H100, network="efa")
    assert float(c.send_s(across, efa)) == pytest.approx(size / (50e9 * constants.EFA_SHARE.median) + wait)


def test_the_last_piece_of_communication_is_hidden_by_nothing_and_what_is_hidden_slows_the_compute():
    """Nine of ten seconds in nine of ten pieces: all hidden where there is compute enough, and a tenth of it felt."""
    felt = constants.COLLECTIVE_SMS.median
    for cover, hidden in ((100.0, 9.0), (9.0, 9.0), (4.0, 4.0), (0.0, 0.0)):
        assert data_parallel._waited(10.0, cover, 9) == pytest.approx(10 - hidden + felt * hidden)


@pytest.mark.parametrize(("layout", "in_forward", "in_backward"), [
    ({"zero": 0}, (0, 0), (1, 3)), ({"zero": 1}, (1, 0), (1, 3)), ({"zero": 2}, (1, 0), (1, 3 * 4)),
    ({"zero": 3}, (0.5, 2 * 4), (1.5, 3 * 4)), ({"zero": 0, "dp_overlap": 0}, (0, 0), (1, 0)),
    ({"zero": 3, "dp_overlap": 0.5}, (0.5, 2 * 4), (1.5, 1.5 * 4)),
])  # fmt: skip
def test_what_a_step_waits_for_of_data_parallelism(layout, in_forward, in_backward):
    """A forward of 2 s and a backward of 3 s for each of four micro-batches: gradients are reduced under the last
    backward, from ZeRO 2 on under each; stage 3 gathers half of the weights under forwards, half under backwards. Each
    is (weights or gradients that are sent, in their whole; seconds of compute that hide them)."""
    huge = replace(H100, gpu=replace(H100.gpu, link_bytes_per_s=9e9))
    cells, profile, behaviour = columns(dp=8, grad_accum=4, **layout), PROFILES["builtin"], Behaviour()
    found = data_parallel.sent(cells, huge, profile, behaviour)
    forward = data_parallel._waited(float(found.weights_s) * in_forward[0], in_forward[1], 32)
    share = in_backward[0] - 1
    backward = data_parallel._waited(float(found.gradients_s + share * found.weights_s), in_backward[1], 32)
    assert data_parallel.exposed_s(cells, huge, profile, behaviour, 2.0, 3.0) == pytest.approx(forward + backward)


def test_a_trainer_that_gathers_weights_under_the_next_forward_hides_them_there():
    cells, profile = columns(dp=8, zero=1, grad_accum=4), PROFILES["builtin"]
    shown, hidden = (
        float(data_parallel.exposed_s(cells, H100, profile, Behaviour(overlaps_weights=one), 9.0, 9.0))
        for one in (False, True)
    )
    weights = float(data_parallel.sent(cells, H100, profile, Behaviour()).weights_s)
    assert shown - hidden == pytest.approx(weights - data_parallel._waited(weights, 9.0, 32))


def test_the_gradient_of_a_tied_embedding_is_reduced_between_the_first_and_the_last_stage():
    """Two ranks, over the network where the stages are on several nodes; of an untied model nothing."""
    ours, size = (PROFILES["builtin"], TRAINERS["builtin"]), 131072 * 2048 * 4
    for layout, nodes in (({"pp": 2}, 1), ({"pp": 2, "dp": 8}, 2), ({"pp": 2, "tp": 2}, 1)):
        tied = data_parallel.sent(columns("1B", **layout), H100, *ours).tied_s
        assert float(tied) == pytest.approx(seconds(size / layout.get("tp", 1), 2, nodes, kind="reduce"))
    assert data_parallel.sent(columns("1B", pp=1), H100, *ours).tied_s == 0
    assert data_parallel.sent(columns("8B", pp=2), H100, *ours).tied_s == 0


@pytest.mark.parametrize(("dp", "parameters"), [(8, 40e6), (512, 512e6)])
def test_megatrons_buckets_grow_with_data_parallelism(dp, parameters):
    """max(40e6, 1e6 * ranks) parameters (Megatron Core's DistributedDataParallel)."""
    columns_, behaviour, profile = columns(dp=dp, zero=1), TRAINERS["megatron"], PROFILES["megatron"]
    whole = replace(behaviour, bucket_bytes=1e15, bucket_per_rank=0.0)
    more, one = (float(data_parallel.sent(columns_, H100, profile, way).gradients_s) for way in (behaviour, whole))
    fixed = replace(behaviour, bucket_bytes=2 * parameters, bucket_per_rank=0.0)
    assert more == pytest.approx(float(data_parallel.sent(columns_, H100, profile, fixed).gradients_s))
    assert more > one


@pytest.mark.parametrize(("dtype", "bytes_"), [("bf16", 4), ("fp16", 2), ("fp32", 4)])
def test_gradients_are_reduced_in_the_trainers_precision_and_of_loss_scaled_runs_in_half(dtype, bytes_):
    tied = data_parallel.sent(columns("1B", pp=2, dtype=dtype), H100, PROFILES["builtin"], TRAINERS["builtin"]).tied_s
    assert float(tied) == pytest.approx(seconds(131072 * 2048 * bytes_, 2, 1, kind="reduce"))
    half = data_parallel.sent(columns("1B", pp=2, dtype=dtype), H100, PROFILES["builtin"], TRAINERS["megatron"]).tied_s
    assert float(half) == pytest.approx(seconds(131072 * 2048 * (4 if dtype == "fp32" else 2), 2, 1, kind="reduce"))


def test_a_stage_of_less_than_one_layer_sends_in_one_piece():
    """nanotron's pipelines have stages of the embedding or the output alone: half of what is sent can be hidden."""
    cells, profile, behaviour = columns(dp=8, pp=64, grad_accum=64), PROFILES["builtin"], Behaviour()
    found = data_parallel.sent(cells, H100, profile, behaviour)
    waited = data_parallel._waited(float(found.gradients_s), 1e6, 1)
    assert data_parallel.exposed_s(cells, H100, profile, behaviour, 1e6, 1e6) == pytest.approx(waited)
