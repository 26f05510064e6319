"""Kernels against published rates, and by hand where no anchor layout (test_anchors) has them."""

from dataclasses import replace

import numpy as np
import pytest

from sweep.physics import constants, kernels, step_time
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.physics.kernels import product_s
from sweep.physics.machine import Machine
from sweep.physics.profiles import PROFILES
from sweep.physics.trainers import TRAINERS

H100 = Machine(gpu=GPUS["h100"])
MEGATRON = PROFILES["megatron"]


@pytest.mark.parametrize(("rows", "width", "depth", "groups"), [(1, 64, 8192, 1), (4, 4096, 4096, 8), (2, 128, 128, 3)])
def test_a_thin_product_takes_as_long_as_its_matrices_are_read_and_written(rows, width, depth, groups):
    moved = 2 * groups * (rows * depth + depth * width + rows * width)
    assert product_s(rows, width, depth, 1e30, H100, groups) == pytest.approx(moved / H100.memory_bytes_per_s)


@pytest.mark.parametrize(("rows", "width", "depth", "groups"), [(8192, 4096, 4096, 1), (4096, 512, 2048, 4)])
def test_a_large_product_takes_its_flops_half_a_wave_and_the_fill_of_its_pipeline(rows, width, depth, groups):
    flops = 2 * rows * width * depth * groups
    half_a_wave = 0.5 * H100.multiprocessors * constants.TILE.median / (rows * width * groups)
    fill = constants.DEPTH.median / depth
    wanted = flops / 1e13 * (1 + half_a_wave) * (1 + fill)
    assert product_s(rows, width, depth, 1e13, H100, groups) == pytest.approx(wanted)


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("layout", [
    {"tp": 1, "zero": 0, "recompute": "none"}, {"tp": 2, "zero": 0, "recompute": "none"},
    {"tp": 1, "zero": 3, "recompute": "full"}, {"tp": 8, "zero": 3, "recompute": "selective", "compile": True},
    {"tp": 1, "zero": 1, "recompute": "full", "compile": False},
    {"tp": 1, "zero": 2, "recompute": "full", "compile": True},
])  # fmt: skip
def test_the_host_launches_each_operation_of_a_layer_and_what_the_gpu_does_meanwhile_counts(trainer, layout):
    behaviour = TRAINERS[trainer]
    columns = MODELS["8B"].as_dict() | {"pp": 1, "dp": 8, "cp": 1, "ep": 1, "gpus_per_node": 8} | layout
    first, second = (8, 8) if layout.get("compile") else behaviour.operations
    more = (behaviour.tensor_operations if layout["tp"] > 1 else 0) + (12 if layout["zero"] == 3 else 0)
    again = (first + more) * (layout["recompute"] == "full")
    accumulated = behaviour.gradient_operations * behaviour.layer_tensors
    each = constants.LAUNCH_S.median
    forward = 4 * (first + more) * each
    backward = 4 * ((second + more) * 2 / 3 + again + accumulated) * each
    found = [
        float(sum(step_time._launches(columns, H100, MEGATRON, behaviour, 4.0, *gpu, 0.0)))
        for gpu in ((0, 0), (forward / 2, 9.0), (9.0, 0))
    ]
    assert found == pytest.approx([forward + backward, forward / 2, backward])


NANOTRON = TRAINERS["nanotron"]


@pytest.mark.parametrize("tp", [1, 8])
def test_where_sends_across_nodes_block_the_host_a_layers_passes_have_a_least_time(tp):
    """3.5 ms and 2.6 ms for each tensor-parallel rank, a third of them forward, as the playbook's runs show. Not where
    the pipeline is in one node, nor of a trainer whose sends do not block."""
    min_s = 4 * (3.5e-3 + 2.6e-3 * tp)
    across = MODELS["8B"].as_dict() | {"pp": 2, "dp": 8, "cp": 1, "tp": tp, "gpus_per_node": 8, "recompute": "none"}

    def found(columns, behaviour, *gpu):
        return float(sum(step_time._launches(columns, H100, MEGATRON, behaviour, 4.0, *gpu, 0.0)))

    assert found(across, NANOTRON, 0.0, 0.0) == pytest.approx(min_s)
    assert found(across, NANOTRON, 0.0, 9.0) == pytest.approx(min_s / 3)
    assert found(across, NANOTRON, 9.0, 0.0) == pytest.approx(min_s * 2 / 3)
    assert found(across | {"gpus_per_node": 1024}, NANOTRON, 0.0, 0.0) < min_s
    assert found(across, replace(NANOTRON, blocking_sends=False), 0.0, 0.0) < min_s


@pytest.mark.parametrize(("layout", "seconds"), [
    ({"pp": 2, "dp": 32}, 8 + 2 - 1),  # 64 nodes: a second for each micro-batch and each stage but one
    ({"pp": 8, "dp": 8}, 8 + 8 - 1),
    ({"pp": 2, "dp": 16}, (8 + 2 - 1) / 2**2.5),  # half as many nodes
    ({"pp": 2, "dp": 8, "cp": 4}, 8 + 2 - 1),
    ({"pp": 1, "dp": 64}, 0),
    ({"pp": 2, "dp": 32, "gpus_per_node": 1024}, 0),
    ({"pp": 2, "dp": 1, "send_wait_s": 0.5}, 0.5 * (8 + 2 - 1)),  # as a column states it
    ({"pp": 8, "dp": 8, "send_wait_s": 0.0}, 0),
])  # fmt: skip
def test_blocking_sends_wait_a_second_for_each_micro_batch_on_64_nodes(layout, seconds):
    columns = {"tp": 8, "cp": 1, "grad_accum": 8, "gpus_per_node": 8} | layout
    assert step_time._send_waits_s(columns, NANOTRON) == pytest.approx(seconds)
    assert step_time._send_waits_s(columns, TRAINERS["megatron"]) == 0


PLAIN, MIXED = MODELS["tiny-1M"], MODELS["tiny-moe"]


def cells(shape, **layout):
    return shape.as_dict() | {"sequence_length": 4096, "dtype": "bf16"} | layout


@pytest.mark.parametrize(("experts", "rows", "measured"), [(8, 4096, 627.9), (16, 2048, 553.9)])
def test_products_of_experts_are_as_fast_as_was_published(experts, rows, measured):
    """NVIDIA/TransformerEngine pull request 2045: (experts, rows, 768, 2048) on H100 in bf16, a kernel per expert."""
    seconds = product_s(rows, 768, 2048, H100.matmul_rate("bf16"), H100, experts, constants.STREAMS.median)
    assert 2 * rows * 768 * 2048 * experts / seconds / 1e12 == pytest.approx(measured, rel=0.05)


@pytest.mark.parametrize(("groups", "rows", "width", "depth", "measured"), [
    (4, 8192, 4096, 7168, 1297), (4, 8192, 7168, 2048, 1099), (8, 4096, 4096, 7168, 1288), (8, 4096, 7168, 2048, 1093),
])  # fmt: skip
def test_grouped_products_in_eight_bits_are_as_fast_as_was_published(groups, rows, width, depth, measured):
    """deepseek-ai/DeepGEMM, README of 2025-02, grouped products of contiguous rows on H800, TFLOP/s."""
    seconds = product_s(rows, width, depth, H100.matmul_rate("fp8"), H100, groups)
    assert 2 * rows * width * depth * groups / seconds / 1e12 == pytest.approx(measured, rel=0.1)


@pytest.mark.parametrize("shape", [MODELS["8B"], MODELS["Mixtral-8x7B"]])
def test_frozen_weights_have_no_gradient(shape):
    """Of a backward's two products the one for the input is left."""
    trained, frozen = (kernels.products(cells(shape), H100, frozen=frozen) for frozen in (False, True))
    assert frozen.forward == trained.forward
    assert 0.4 < frozen.backward / trained.backward < 0.6
    ends = [kernels.output_products(cells(shape), H100, frozen=frozen).backward for frozen in (False, True)]
    assert 0.4 < ends[1] / ends[0] < 0.6


def per_token(found):
    """Bytes per token of (forward, backward) seconds."""
    return [float(seconds) * H100.memory_bytes_per_s / 4096 for seconds in found]


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("trainer", ["torchtitan", "megatron", "builtin"])
def test_elementwise_kernels_read_and_write_the_residual_path_the_mlps_width_and_the_heads(trainer, tp):
    """In half precision: hidden 128, width 384, 4 + 2 * 2 heads of 32. LayerNorm is one kernel in PyTorch and without
    rotary embeddings queries and keys are only copied, whatever the trainer; an activation without a gate moves six
    tenths."""
    how = TRAINERS[trainer]
    rotary = list(zip(how.norms, how.widths, how.heads, strict=True))
    for shape, each in (
        (PLAIN, rotary),
        (replace(PLAIN, gated_mlp=False), [(norm, 0.6 * width, head) for norm, width, head in rotary]),
        (
            replace(PLAIN, norm="layernorm"),
            [(min(one[0], most), *one[1:]) for one, most in zip(rotary, (10, 16), strict=True)],
        ),
        (replace(PLAIN, learned_positions=64), [(*one[:2], min(one[2], 2)) for one in rotary]),
    ):
        found = per_token(kernels.elementwise(cells(shape, tp=tp), H100, MEGATRON, how))
        assert found == pytest.approx(
            [2 * (norm * 128 + width * 384 + head * 8 * 32) / tp for norm, width, head in each]
        )
    whole = replace(MEGATRON, sequence_parallel=False)
    found = per_token(kernels.elementwise(cells(PLAIN, tp=tp), H100, whole, how))
    assert found == pytest.approx(
        [2 * (norm * 128 + width * 384 / tp + head * 256 / tp) for norm, width, head in rotary]
    )


def test_compiled_elementwise_kernels_move_the_least_whatever_the_trainer_and_casts_to_fewer_bits_come_on_top():
    fused = [2 * (8 * 128 + 3 * 384 + 2 * 256), 2 * (13 * 128 + 5 * 384 + 2 * 256)]
    for trainer in TRAINERS.values():
        found = kernels.elementwise(cells(PLAIN, compile=True), H100, MEGATRON, trainer)
        assert per_token(found) == pytest.approx(fused)
    cast = 2 * 128 + 256 + 384
    for dtype, each in (("fp8", 3.8), ("fp8_delayed", 3.8), ("fp8_tensorwise", 6.1)):
        small = kernels.elementwise(cells(PLAIN, compile=True, dtype=dtype), H100, MEGATRON, NANOTRON)
        assert per_token(small) == pytest.approx([fused[0] + each * cast, fused[1] + each * (cast + 384)])


@pytest.mark.parametrize(("dtype", "each"), [
    ("fp8", 4.6), ("mxfp8", 4.6), ("fp8_tensorwise", 5.9), ("fp8_delayed", 2.5), ("fp4", 7.0), ("nvfp4", 7.0)
])  # fmt: skip
def test_blackwell_casts_inputs_in_forward_and_gradients_of_outputs_in_backward(dtype, each):
    """The gated MLP has twice its width as an output. Where the whole step is a graph, the routed experts' products
    activate and cast what they return."""
    b200 = Machine(gpu=GPUS["b200"])
    bytes_per_s = 8e12 * constants.BLACKWELL_MEMORY_SHARE.median

    def moved(shape, **layout):
        found = kernels.elementwise(cells(shape, **layout), b200, MEGATRON, TRAINERS["megatron"])
        return np.asarray(found) * bytes_per_s / 4096

    inputs = 2 * 128 + 256 + 384
    assert moved(PLAIN, dtype=dtype) - moved(PLAIN) == pytest.approx([each * inputs, each * (inputs + 384)])
    apart, together = moved(MIXED, dtype=dtype), moved(MIXED, dtype=dtype, cuda_graphs="full_iteration")
    width = 2 * 192
    assert apart - together == pytest.approx([(2 * 3 + each) * width, (2 * 5 + 2 * each) * width])


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_a_mixture_moves_its_copies_of_tokens_and_the_width_of_the_experts_that_a_token_uses(dtype):
    """Six elements for each of a routed token, forward, at the rate of gathering rows, and its cast to eight bits."""
    found = per_token(kernels.elementwise(cells(MIXED, compile=True, dtype=dtype), H100, MEGATRON, NANOTRON))
    routed, width = 2 * 128, 3 * 192
    cast = 3.8 * (2 * 128 + 2 * 128 + width + routed) if dtype == "fp8" else 0
    rows = 2 * 6 * routed * 0.8 / 0.42
    assert found[0] == pytest.approx(2 * (8 * 128 + 3 * width + 2 * 256) + rows + cast)


@pytest.mark.parametrize(("head_dim", "share"), [(64, 0.84), (95, 0.84), (96, 1.0), (128, 1.0)])
def test_flash_attention_takes_its_causal_flops_at_the_share_that_its_paper_reached(head_dim, share):
    """arXiv 2407.08608: FlashAttention-2 on H100 at 35 % of the peak forward and 31 % backward, 2.5 times the work; of
    heads of 64 0.84 of that; half of it at 400 positions."""
    shape = replace(PLAIN, head_dim=head_dim)
    flops = 2 * 4096 * 4096 * 4 * head_dim  # half of 4 s^2 a d
    reached = H100.peak("bf16") * share * 4096 / (4096 + 400)
    found = kernels.attention(cells(shape), H100, MEGATRON, TRAINERS["nanotron"])
    assert found == pytest.approx((flops / reached / 0.35, 2.5 * flops / reached / 0.31))


@pytest.mark.parametrize(("gpu", "length", "measured"), [
    ("b200", 8192, (1171, 943)), ("b200", 32768, (1419, 1109)), ("gb200", 4096, (1335, 1132)),
    ("gb200", 8192, (1598, 1311)), ("gb300", 8192, (1887, 1385)), ("gb300", 32768, (2014, 1549)),
])  # fmt: skip
def test_attention_on_blackwell_is_as_fast_as_was_published(gpu, length, measured):
    """NVIDIA/cudnn-frontend, benchmark/sdpa_benchmark_training: causal, 64 heads of 128, TFLOP/s."""
    columns = cells(replace(PLAIN, num_heads=64, head_dim=128), sequence_length=length)
    found = kernels.attention(columns, Machine(gpu=GPUS[gpu]), MEGATRON, TRAINERS["megatron"])
    work = 2 * length**2 * 64 * 128 * np.array([1, 2.5])
    assert work / np.asarray(found) / 1e12 == pytest.approx(measured, rel=0.07)


@pytest.mark.parametrize(("gpu", "length", "measured"), [
    ("mi300x", 4096, (428, 305)), ("mi300x", 8192, (474, 363)), ("mi355x", 4096, (1069, 877)),
    ("mi355x", 16384, (1247, 1109)),
])  # fmt: skip
def test_attention_on_amds_gpus_is_as_fast_as_was_published_whatever_kernel_a_trainer_has_elsewhere(
    gpu, length, measured
):
    """AMD-AGI/Primus-Turbo output/baseline_attention.csv (means), HazyResearch/HipKittens: causal, heads of 128."""
    columns = cells(replace(PLAIN, num_heads=64, head_dim=128), sequence_length=length)
    work = 2 * length**2 * 64 * 128 * np.array([1, 2.5])
    for trainer in ("megatron", "torchtitan"):
        found = kernels.attention(columns, Machine(gpu=GPUS[gpu]), MEGATRON, TRAINERS[trainer])
        assert work / np.asarray(found) / 1e12 == pytest.approx(measured, rel=0.10)


def test_only_cudnns_kernel_loses_more_at_width_64_on_blackwell():
    """FlashAttention-2 has no kernel of its own for Blackwell: as on Hopper, 0.84 of its rate; cuDNN 0.69."""
    b200, ways = Machine(gpu=GPUS["b200"]), []
    for width in (64, 128):
        one = cells(replace(PLAIN, num_heads=8192 // width, head_dim=width), attention_kernel=["flash-2", "cudnn"])
        ways.append(kernels.attention(one, b200, MEGATRON, TRAINERS["megatron"]).forward)
    assert ways[1] / ways[0] == pytest.approx([0.84, 0.69])


@pytest.mark.parametrize(("dropout", "traffic"), [(True, (14, 24)), (False, (8, 16))])
def test_attention_that_stores_its_scores_is_traffic_and_what_products_take_longer(dropout, traffic):
    """Bytes per pair of positions and head. Products of heads of 32 take less than the traffic they overlap with; of
    heads of 4096 at half of the best products' rate all but what was counted with the traffic."""
    profile = replace(PROFILES["paper"], dropout=dropout)
    pairs = 4096 * 4096 * 4
    rate, memory = H100.matmul_rate("fp16") / 2, H100.memory_bytes_per_s
    found = kernels.attention(cells(PLAIN), H100, profile, TRAINERS["builtin"])
    assert found == pytest.approx([bytes_ * pairs / memory for bytes_ in traffic])
    wide = kernels.attention(cells(replace(PLAIN, head_dim=4096)), H100, profile, TRAINERS["builtin"])
    work = 4 * pairs * 4096
    more = [ways * work / rate - 4 * ways * pairs / memory for ways in (1, 2)]
    assert wide == pytest.approx([bytes_ * pairs / memory + one for bytes_, one in zip(traffic, more, strict=True)])


@pytest.mark.parametrize(("trainer", "fact", "value"), [
    ("llm-foundry", "optimizer_traffic", TRAINERS["torchtitan"].optimizer_traffic),  # both are FSDP's
    ("llm-foundry", "gradient_comm_bytes", 2),
    ("megatron-2021", "tensor_hidden", 0), ("megatron-2021", "sends_hidden", 0),  # neither was under products then
])  # fmt: skip
def test_facts_of_trainers_without_an_anchor_are_those_of_their_sources(trainer, fact, value):
    """The files that ``sweep/physics/trainers.py`` names."""
    assert getattr(TRAINERS[trainer], fact) == value
