"""The memory model alone: invariants for any data, and published worked examples."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.physics import activations, memory, pipeline, states
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.physics.profiles import PROFILES, profile_of
from sweep.physics.schedules import SCHEDULES
from sweep.physics.shapes import ModelShape, total_parameters

OURS = PROFILES["builtin"]
EVEN = dataclasses.replace(OURS, placement="even")
"""all ranks in the middle of a pipeline hold the same"""


def columns(model="8B", **layout):
    base = {"sequence_length": 4096, "micro_batch_size": 1}
    return MODELS[model].as_dict() | base | layout


def peak(profile=OURS, **layout):
    return float(memory.peak_bytes(columns(**layout), profile))


def test_13b_worked_example():
    """ML Engineering: 13 B, s = 1024, h = 5120, a = 40, L = 40: 26 + 156 + 26 GB of states, 14.5 GiB of activations."""
    shape = ModelShape(
        num_layers=40,
        hidden_size=5120,
        num_heads=40,
        intermediate_size=20480,
        vocab_size=80000,
        gated_mlp=False,
        tied_embeddings=True,
    )
    part = memory.breakdown(shape.as_dict() | {"sequence_length": 1024}, PROFILES["paper"])
    assert part["weights"] / 1e9 == pytest.approx(26, abs=0.5)
    assert part["gradients"] / 1e9 == pytest.approx(26, abs=0.5)
    assert (part["master_weights"] + part["optimizer_states"]) / 1e9 == pytest.approx(156, abs=1)
    assert part["activations"] / memory.GIB == pytest.approx(14.5, abs=0.1)


@pytest.mark.parametrize(("dp", "per_parameter"), [(1, 2 + 2 + 4), (2, 2 + 4 + 4)])
def test_picotrons_states(dp, per_parameter):
    """train.py: bf16 weights and AdamW on them; DataParallelBucket sums gradients in fp32 instead of bf16."""
    profile = profile_of("picotron", {})
    part = memory.breakdown(columns("1B", dp=dp), profile, "first")
    states_bytes = sum(part[kind] for kind in memory.STATE_KINDS)
    assert states_bytes == pytest.approx(per_parameter * total_parameters(MODELS["1B"]), rel=1e-3)


def test_smollm3_needs_74_of_80_gb():
    """SmolLM3 on 384 H100: dp 192, tp 2, micro-batch 3, ZeRO 0, predicted at 74 GB; its time line rises as drawn."""
    layout = columns("SmolLM3-3B", dp=192, tp=2, micro_batch_size=3)
    fit = memory.fits(layout, GPUS["h100"], PROFILES["nanotron"])
    assert fit.fits
    assert fit.needed_bytes / 1e9 == pytest.approx(74, abs=4)
    line = {phase: part["total"] for phase, part in memory.timeline(layout, PROFILES["nanotron"]).items()}
    assert list(line) == [
        "model init",
        "gradient accumulator",
        "first forward-backward peak",
        "first optimizer step",
        "second forward-backward peak",
        "second optimizer step",
    ]
    init, accumulator, first, step, second, last = line.values()
    assert init < accumulator < step < first < second
    assert step == last
    assert second == memory.breakdown(layout, PROFILES["nanotron"])["total"]


@pytest.mark.parametrize(("zero", "wanted"), [(0, 16.0), (1, 4 + 12 / 8), (2, 2 + 14 / 8), (3, 16 / 8)])
def test_stages_of_zero_as_the_paper_has_them(zero, wanted):
    """arXiv 1910.02054 figure 1: 16 P, 4 P + 12 P / n, 2 P + 14 P / n, 16 P / n bytes."""
    part = states.state_bytes(columns(dp=8, zero=zero), MODELS["8B"], "first", PROFILES["paper"])
    assert sum(part.values()) == pytest.approx(wanted * total_parameters(MODELS["8B"]), rel=1e-3)


@pytest.mark.parametrize(("optimizer", "bytes_"), [("adamw", 8), ("adamw-bf16", 4), ("adamw-8bit", 2), ("sgd", 0)])
def test_optimizers_differ_in_their_states(optimizer, bytes_):
    part = memory.breakdown(columns(), dataclasses.replace(OURS, optimizer=optimizer))
    assert part["optimizer_states"] == pytest.approx(bytes_ * total_parameters(MODELS["8B"]), rel=1e-3)


@pytest.mark.parametrize("model", ["8B", "1B", "Mixtral-8x7B"])
@pytest.mark.parametrize("pp", [1, 2, 4])
def test_stages_hold_the_model_once_and_a_tied_embedding_twice(model, pp):
    shape = MODELS[model]
    held = 0.0
    for stage, count in (("first", 1), ("middle", max(pp - 2, 0)), ("last", pp > 1)):
        held += count * sum(states.stage_parameters({"pp": pp}, shape, stage, EVEN))
    twice = shape.vocab_size * shape.hidden_size * (shape.tied_embeddings and pp > 1)
    assert held == pytest.approx(total_parameters(shape) + twice, rel=1e-5)


@given(
    st.sampled_from(["builtin", "nanotron", "megatron", "torchtitan"]), st.sampled_from([1, 2, 4]), st.integers(0, 2)
)
def test_more_sharding_never_needs_more_states(profile, tp, zero):
    def held(zero):
        layout = columns(dp=8, tp=tp, zero=zero, grad_accum=4)
        return sum(states.state_bytes(layout, MODELS["8B"], "first", PROFILES[profile]).values())

    assert held(zero + 1) <= held(zero)


@given(
    st.sampled_from(["builtin", "nanotron", "megatron"]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(["none", "selective", "full"]),
    st.integers(1, 16),
)
def test_a_larger_micro_batch_always_needs_more(profile, tp, pp, recompute, micro):
    layout = {"tp": tp, "pp": pp, "dp": 8, "grad_accum": 8, "recompute": recompute}
    smaller, larger = (peak(PROFILES[profile], **layout, micro_batch_size=m) for m in (micro, micro + 1))
    assert smaller < larger


def test_selective_recomputation_that_keeps_partial_sums_keeps_more_under_a_wide_tp():
    found = [peak(OURS, tp=8, micro_batch_size=4, recompute=r) for r in ("none", "selective")]
    assert found[0] < found[1]


def test_unknown_memory_lets_everything_fit():
    fit = memory.fits(columns("80B", dp=np.array([1, 8])), GPUS["cpu"])
    assert fit.fits.tolist() == [True, True]
    assert fit.limit_bytes is None


def test_reasons_come_with_their_numbers():
    fit = memory.fits(columns("80B", dp=np.array([1, 512]), zero=3, recompute="full"), GPUS["h100"])
    assert fit.fits.tolist() == [False, True]
    assert fit.over.tolist() == [True, False]
    assert fit.needed_bytes[0] > fit.limit_bytes > fit.available_bytes


def test_in_fp32_logits_take_twice_as_much_as_in_half_precision_and_never_less():
    shape = MODELS["1B"].as_dict() | {"sequence_length": 4096}
    profile = PROFILES["megatron"]
    logits = {dtype: float(memory.logit_bytes({**shape, "dtype": dtype}, profile, "first")) for dtype in DTYPES}
    assert logits["bf16"] == logits["fp16"] == 4096 * 131072 * profile.logit_bytes
    assert logits["fp32"] == 2 * logits["bf16"]


DTYPES = ("bf16", "fp16", "fp32")


@pytest.mark.parametrize(("widths", "groups"), [((1, 1, 1, 1, 1), 0), ((2, 1, 1, 1, 1), 2), ((2, 4, 1, 1, 1), 3),
                                                ((2, 2, 2, 2, 2), 6), ((1, 1, 1, 1, 8), 2)])  # fmt: skip
def test_outside_of_torch_are_a_context_and_a_communicator_per_wide_axis_and_one_for_all(widths, groups):
    layout = dict(zip(("dp", "tp", "pp", "cp", "ep"), widths, strict=True))
    wanted = memory.CONTEXT_BYTES + groups * memory.NCCL_BYTES_PER_GROUP
    assert memory.outside_torch_bytes(layout) == wanted


@pytest.mark.parametrize(("recompute", "tp", "sequence_parallel", "per_sbh", "per_abs"), [
    ("none", 1, False, 34, 5), ("none", 8, False, 10 + 24 / 8, 5 / 8), ("none", 8, True, 34 / 8, 5 / 8),
    ("selective", 8, False, 10 + 24 / 8, 0), ("selective", 8, True, 34 / 8, 0), ("full", 1, False, 2, 0),
])  # fmt: skip
def test_activations_of_table_2_of_korthikanti(recompute, tp, sequence_parallel, per_sbh, per_abs):
    """arXiv 2205.05198 table 2: s b h (34 + 5 a s / h) and its divisions, for GPT-3's layer."""
    s, b, h, a = 2048, 1, 12288, 96
    shape = ModelShape(
        num_layers=96, hidden_size=h, num_heads=a, intermediate_size=4 * h, vocab_size=51200, gated_mlp=False
    )
    profile = dataclasses.replace(PROFILES["paper"], sequence_parallel=sequence_parallel)
    layout = {"tp": tp, "micro_batch_size": b, "sequence_length": s, "recompute": recompute} | shape.as_dict()
    found = s * b * activations.layer_bytes_per_token(layout, shape, profile)
    assert found == pytest.approx(s * b * h * per_sbh + a * s * s * b * per_abs)


@pytest.mark.parametrize(("tp", "hidden_copies"), [(1, 3), (8, 3 / 8 + 2)])
@pytest.mark.parametrize("compiled", [False, True])
def test_of_outputs_of_products_a_layer_stores_its_matrices_its_attention_and_its_input(tp, hidden_copies, compiled):
    """bf16, 8B: queries, output, keys and values of 32 heads of 128, both first matrices of the MLP, the layer's input
    and the outputs of its two row-split matrices, compiled of the first alone; under tp also two gathered inputs and
    the row-split matrices' partial sums, whole."""
    profile = dataclasses.replace(OURS, compiled=compiled)
    layout = columns(tp=tp, recompute="selective")
    attention = 2 * 4 * 32 * 128 / tp + 4 * 32 / tp
    wanted = attention + 2 * (2 * 14336 / tp + 4096 * (hidden_copies - compiled / tp)) + 2 * 2 * 4096 * (tp > 1)
    assert activations.layer_bytes_per_token(layout, MODELS["8B"], profile) == pytest.approx(wanted)


def test_what_recomputation_restores_is_what_it_dropped():
    """For one layer at a time, while its backward runs."""
    shape = MODELS["8B"]
    for profile, recompute in ((OURS, "selective"), (OURS, "full"), (PROFILES["paper"], "selective")):
        retained, whole = (
            activations.layer_bytes_per_token(columns(recompute=r), shape, profile) for r in (recompute, "none")
        )
        restored = activations.recomputed_bytes_per_token(columns(recompute=recompute), shape, profile)
        assert restored == whole - retained > 0
    assert activations.recomputed_bytes_per_token(columns(), shape, OURS) == 0


@pytest.mark.parametrize(("tp", "kv_heads"), [(1, 8), (4, 2), (8, 1), (16, 1)])
def test_a_rank_has_one_head_of_keys_and_values_at_least(tp, kv_heads):
    found = activations.attention_bytes_per_token(columns("Llama-3-8B", tp=tp), MODELS["Llama-3-8B"], OURS)
    assert found == 2 * 128 * (2 * 32 / tp + 2 * kv_heads) + 4 * 32 / tp


def test_context_parallelism_that_gathers_keys_and_values_stores_those_of_the_whole_sequence():
    shape, layout = MODELS["Llama-3-8B"], columns("Llama-3-8B", cp=4)
    ring = dataclasses.replace(OURS, whole_kv_in_cp=False)
    found = [activations.attention_bytes_per_token(layout, shape, profile) for profile in (OURS, ring)]
    assert found == [2 * 128 * (2 * 32 + 2 * 8 * copies) + 4 * 32 for copies in (4, 1)]


@pytest.mark.parametrize(("width", "widest"), [(14336, 2 * 14336), (1024, 3 * 32 * 128)])
def test_gradients_in_a_layers_backward_are_of_the_residual_path_and_of_its_widest_matrix(width, widest):
    shape = dataclasses.replace(MODELS["8B"], intermediate_size=width)
    assert activations.backward_bytes_per_token({"tp": 4}, shape) == 2 * (4096 + widest / 4)


def test_a_mixtures_layer_stores_what_it_sends_its_experts_and_the_routers_scores():
    """Two routed experts a token and a shared one, each of width 192: as much as a dense MLP of all three, two copies
    of what is sent, and eight bytes per expert of the router."""
    shape = MODELS["tiny-moe"]
    no_experts = {"num_experts": 0, "experts_per_token": 0, "shared_experts": 0, "moe_intermediate_size": 0}
    dense = dataclasses.replace(shape, **no_experts, intermediate_size=3 * 192)
    for tp in (1, 2):
        mixture, same = (
            activations.layer_bytes_per_token(one.as_dict() | {"tp": tp, "sequence_length": 64}, one, OTHERS)
            for one in (shape, dense)
        )
        assert mixture - same == pytest.approx(2 * 2 * 128 * 2 / tp + 8 * 8)


@pytest.mark.parametrize(("fused", "per_width"), [(False, 4 * 2), (True, 3 * 2)])
def test_a_gated_mlp_stores_the_outputs_of_both_matrices_and_the_last_ones_input(fused, per_width):
    """And the activation's own output, where it is a kernel of its own."""
    narrow = MODELS["tiny-1M"]
    wide = dataclasses.replace(narrow, intermediate_size=narrow.intermediate_size + 100)
    profile = dataclasses.replace(OTHERS, fused_activation=fused)
    found = [
        activations.layer_bytes_per_token(one.as_dict() | {"sequence_length": 64}, one, profile)
        for one in (narrow, wide)
    ]
    assert found[1] - found[0] == 100 * per_width


OTHERS = PROFILES["megatron"]


@pytest.mark.parametrize(("layout", "in_chunks"), [
    ({}, True), ({"dp": 2}, True), ({"cp": 2}, False), ({"cp": 2, "micro_batch_size": 2}, True), ({"tp": 2}, False),
    ({"pp_schedule": "gpipe"}, True), ({"pp_schedule": "gpipe", "pp": 2, "grad_accum": 4}, False),
    ({"pp_schedule": "interleaved_1f1b", "pp": 2, "grad_accum": 4}, True), ({"pp": 2, "grad_accum": 4}, True),
])  # fmt: skip
def test_logits_exist_in_chunks_where_a_backward_follows_its_forward_and_tokens_are_more_than_a_chunk(
    layout, in_chunks
):
    """Chunks of 2,048 tokens: logits and their gradient, each in half precision and in fp32, or the reduction of the
    projection's gradient in fp32; and the input's gradient of all tokens."""
    stage = "last" if layout.get("pp", 1) > 1 else "first"
    found = float(memory.logit_bytes(columns(**layout), OURS, stage))
    vocabulary, hidden, chunk = 131072, 4096, 2048
    tokens = 4096 * layout.get("micro_batch_size", 1) / layout.get("cp", 1)
    wanted = max(
        chunk * vocabulary * 12 + 2 * vocabulary * hidden,
        6 * vocabulary * hidden * (max(layout.get("dp", 1), layout.get("cp", 1)) > 1),
    )
    assert (found == pytest.approx(wanted + 2 * hidden * tokens)) is in_chunks


def test_whole_logits_of_tensor_parallel_ranks_and_of_micro_batches_that_wait():
    """Ours: 12 bytes each, 16 where tp splits them; a stage's outputs until their backward, and under GPipe 4 more for
    each micro-batch that waits between its loss and its backward."""
    logits = 4096 * 131072
    whole = dataclasses.replace(OURS, loss_chunk_tokens=0)
    assert memory.logit_bytes(columns(), whole, "first") == logits * 12
    assert memory.logit_bytes(columns(tp=2), whole, "first") == logits / 2 * 16
    assert memory.logit_bytes(columns(dtype="fp32"), whole, "first") == logits * 12, "its loss is in fp32 anyway"
    gathered = dataclasses.replace(whole, vocabulary_parallel=False)
    assert memory.logit_bytes(columns(tp=2), gathered, "first") == logits * 12
    piped = columns(pp=2, grad_accum=5)
    assert memory.logit_bytes(piped, whole, "last") == logits * (12 + 2)
    assert memory.logit_bytes(piped, whole, "first") == 0
    assert memory.logit_bytes(piped | {"pp_schedule": "gpipe"}, whole, "last") == logits * (12 + 2 + 4 * (2 + 4))
    assert memory.logit_bytes(columns(grad_accum=5, pp_schedule="gpipe"), whole, "first") == logits * 12


@pytest.mark.parametrize(("stage", "layout", "buffers"), [
    ("first", {"pp": 1}, 0), ("first", {"pp": 4, "grad_accum": 8}, 8 + 4),
    ("middle", {"pp": 4, "grad_accum": 8}, 8 - 3 + 8 + 3), ("last", {"pp": 4, "grad_accum": 8}, 8 - 1),
    ("first", {"pp": 2, "grad_accum": 4, "pp_schedule": "interleaved_1f1b"}, (4 - 5 / 2) + 2 * (4 + 5 / 2)),
])  # fmt: skip
def test_torchs_pipelines_have_a_buffer_for_each_micro_batch_of_a_step_that_a_neighbour_sends(stage, layout, buffers):
    """Those in flight count as inputs of the stage's layers; gradients come on top. Others have two in all."""
    hidden_bytes = 4096 * 2 * 4096
    found = memory.step_bytes(columns(**layout), OURS, stage)["pipeline_buffers"]
    assert found == pytest.approx(hidden_bytes * buffers)
    two = memory.step_bytes(columns(**layout), PROFILES["megatron"], stage)["pipeline_buffers"]
    assert two == hidden_bytes * 2 * (layout["pp"] > 1)


SCHEDULE_FREE = ("builtin", "nanotron", "megatron", "torchtitan")


@pytest.mark.parametrize("profile", SCHEDULE_FREE)
def test_without_a_pipeline_every_schedule_needs_the_same_memory(profile):
    found = {
        float(memory.peak_bytes(columns(pp_schedule=schedule, dp=8, grad_accum=4, virtual_stages=3), PROFILES[profile]))
        for schedule in SCHEDULES
    }
    assert len(found) == 1


@pytest.mark.parametrize("experts", [1, 8])
@pytest.mark.parametrize("profile", SCHEDULE_FREE)
@pytest.mark.parametrize("recompute", ["none", "selective"])
def test_of_a_model_whose_layers_are_all_mixtures_the_dense_width_needs_no_memory(experts, profile, recompute):
    found = []
    for width in (384, 4096):
        shape = dataclasses.replace(
            MODELS["tiny-moe"], num_experts=experts, experts_per_token=1, intermediate_size=width
        )
        layout = shape.as_dict() | {"sequence_length": 64, "dp": 2, "zero": 3, "recompute": recompute}
        found.append(float(memory.peak_bytes(layout, PROFILES[profile])))
    assert found[0] == found[1]


@pytest.mark.parametrize(("layout", "ways"), [
    ({"dp": 8, "ep": 1}, 8), ({"dp": 8, "ep": 4}, 2), ({"dp": 8, "ep": 8}, 1), ({"dp": 4, "cp": 2, "ep": 4}, 2),
    ({"dp": 2, "tp": 4, "ep": 8}, 1), ({"dp": 2, "tp": 4, "ep": 8, "etp": 1}, 1),
    ({"dp": 4, "tp": 4, "ep": 4, "etp": 1}, 4),
])  # fmt: skip
def test_experts_have_as_many_fewer_copies_to_shard_as_ranks_they_are_split_over_and_one_at_least(layout, ways):
    assert states.shards(layout) == (layout["dp"] * layout.get("cp", 1), ways)


def test_buckets_of_gradients_are_whole_on_every_rank_and_exist_where_gradients_are_all_reduced():
    """nanotron's DDP: two bytes per parameter, whatever ZeRO shards; none alone, and none from stage 2 on."""
    for layout, held in (({"dp": 2}, 1), ({"dp": 2, "zero": 1}, 1), ({"cp": 2}, 1), ({}, 0), ({"dp": 8, "zero": 2}, 0)):
        part = states.state_bytes(columns(**layout), MODELS["8B"], "first", PROFILES["nanotron"])
        assert part["gradient_buckets"] == pytest.approx(held * 2 * total_parameters(MODELS["8B"]), rel=1e-3), layout


@pytest.mark.parametrize("stage", ["first", "last"])
def test_the_heaviest_rank_is_the_one_of_the_largest_total_with_its_own_states(stage):
    """The last stage has the logits, the first the activations of most micro-batches."""
    layout, profile = {
        "first": (columns(pp=4, grad_accum=8), PROFILES["megatron"]),
        "last": (columns("1B", pp=4, grad_accum=8, micro_batch_size=8, recompute="full"), PROFILES["megatron"]),
    }[stage]
    present = [name for name in pipeline.STAGES if pipeline.exists(layout, name)]
    totals = {name: float(memory.breakdown(layout, profile, name)["total"]) for name in present}
    found = memory.heaviest(layout, profile)
    assert float(found.total_bytes) == max(totals.values()) == float(memory.peak_bytes(layout, profile))
    name = pipeline.STAGES[int(found.stage)]
    assert name == stage
    assert totals[name] == max(totals.values())
    part = memory.breakdown(layout, profile, name)
    assert float(found.states_bytes) == pytest.approx(sum(float(part[kind]) for kind in memory.STATE_KINDS))


def test_a_prediction_of_just_what_is_accepted_fits_and_of_just_what_there_is_is_not_over():
    for needed, fits, over in (
        (99.0, True, False),
        (100.0, True, False),
        (101.0, True, True),
        (110.0, True, True),
        (111.0, False, True),
    ):
        fit = memory.MemoryUse(needed, 100.0, 110.0)
        assert (fit.fits, fit.over) == (fits, over)
    unknown = memory.MemoryUse(1e18, None, None)
    assert (unknown.fits, unknown.over) == (True, False)


def test_eight_ranks_need_a_gib_outside_of_torch_and_an_h100_gives_a_process_79_6_gib():
    """0.6 GiB of context on H100 with lazy loading; 0.2 GiB for each of two communicators. 81,559 MiB by nvidia-smi."""
    assert memory.outside_torch_bytes({"dp": 8}) / memory.GIB == pytest.approx(0.6 + 2 * 0.2)
    assert memory.usable_bytes(GPUS["h100"]) / 2**20 == pytest.approx(81559, rel=0.001)
    assert memory.usable_bytes(GPUS["cpu"]) is None


def test_a_profiles_margin_is_what_a_prediction_may_exceed_the_memory_by():
    for margin in (0.0, 0.25):
        fit = memory.fits(columns(), GPUS["h100"], dataclasses.replace(OURS, margin=margin))
        assert fit.limit_bytes == pytest.approx((1 + margin) * fit.available_bytes)


def test_phases_of_a_step_hold_what_exists_by_then():
    """Bytes by kind; states of the optimizer from the first update on, and what the allocator wastes on top of each."""
    layout, profile = columns(dp=2, zero=1, grad_accum=2), PROFILES["nanotron"]
    full, line = memory.breakdown(layout, profile), memory.timeline(layout, profile)
    step = {kind for kind in memory.STEP_KINDS if full[kind] > 0}
    held = {"weights", "master_weights", "gradients", "gradient_buckets"}
    wanted = {
        "model init": {"weights", "master_weights"}, "gradient accumulator": held,
        "first forward-backward peak": held | step, "first optimizer step": held | {"optimizer_states"},
        "second forward-backward peak": held | {"optimizer_states"} | step,
        "second optimizer step": held | {"optimizer_states"},
    }  # fmt: skip
    for phase, kinds in wanted.items():
        part = {kind: float(bytes_) for kind, bytes_ in line[phase].items()}
        total, wasted = part.pop("total"), part.pop("fragmentation")
        assert {kind for kind, bytes_ in part.items() if bytes_ > 0} == kinds | {"fixed"}
        assert wasted == pytest.approx(0.12 * sum(part.values()))
        assert total == pytest.approx(1.12 * sum(part.values()))


def test_a_rank_alone_holds_no_second_copy_of_weights_that_it_computes_with():
    """Ours in fp32 on one GPU; with a peer, or in bf16, the fp32 weights are a master copy."""
    for layout, copies in (
        ({"dtype": "fp32"}, 0),
        ({"dtype": "fp32", "tp": 2}, 1),
        ({"dtype": "fp32", "dp": 2}, 1),
        ({}, 1),
    ):
        part = states.state_bytes(columns(**layout), MODELS["8B"], "first", OURS)
        held = 4 * total_parameters(MODELS["8B"]) / layout.get("tp", 1)
        assert part["master_weights"] == pytest.approx(copies * held, rel=1e-3), layout


@pytest.mark.parametrize(("layout", "weights", "gradients"), [
    ({"dp": 8, "zero": 3, "grad_accum": 2}, 2, 4), ({"dp": 8, "zero": 3, "grad_accum": 1}, 2, 0),
    ({"dp": 8, "zero": 2, "grad_accum": 2}, 0, 4), ({"dp": 8, "zero": 1, "grad_accum": 2}, 0, 0),
    ({"dp": 8, "zero": 1, "grad_accum": 1}, 0, 0), ({"dp": 2, "pp": 2, "zero": 3, "grad_accum": 4}, 2, 0),
])  # fmt: skip
def test_of_our_ends_the_gathered_weights_are_whole_and_the_last_micro_batchs_gradient_in_fp32(
    layout, weights, gradients
):
    """Token embedding or output projection: the larger of what exists at once is one of them."""
    one_end = 131072 * 4096
    found = states.gathered_bytes(columns(**layout), MODELS["8B"], "first", OURS)
    assert found == one_end * (weights + gradients)


def test_weights_of_our_layers_are_whole_while_their_backward_runs():
    """Two layers in bf16 at ZeRO 3 and the half-precision gradient of one where gradients are scattered at once."""
    shape = MODELS["8B"]
    layer = (total_parameters(shape) - 2 * 131072 * 4096 - 4096) / 32
    for zero, gas, bytes_ in ((3, 2, 2 * 2 + 2), (2, 2, 2), (1, 2, 0), (1, 1, 2), (0, 1, 0)):
        found = states.passing_layer_bytes(columns(dp=8, zero=zero, grad_accum=gas), shape, OURS)
        assert found == layer * bytes_, (zero, gas)
    assert states.passing_layer_bytes(columns(dp=8, zero=3), shape, PROFILES["megatron"]) == 0


@pytest.mark.parametrize("pp", [1, 2, 4])
def test_learned_positions_are_a_row_each_on_the_rank_that_embeds(pp):
    plain = MODELS["tiny-1M"]
    learned = dataclasses.replace(plain, learned_positions=512)
    for stage in pipeline.STAGES:
        held = [sum(states.stage_parameters({"pp": pp}, shape, stage, EVEN)) for shape in (plain, learned)]
        assert held[1] - held[0] == 512 * 128 * (stage == "first" or (pp == 1 and stage == "last"))
