"""The memory model: invariants for any data, and published worked examples; kinds by layout: test_anchors."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.physics import activations, memory, pipeline, states
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.physics.profiles import PROFILES
from sweep.physics.schedules import SCHEDULES
from sweep.physics.shapes import ModelShape, layer_parameters, total_parameters

OURS = PROFILES["builtin"]
EVEN = dataclasses.replace(OURS, placement="even")
"""all ranks in the middle of a pipeline hold the same"""


def columns(model="8B", **layout):
    base = {"sequence_length": 4096, "micro_batch_size": 1}
    return MODELS[model].as_dict() | base | layout


def peak(profile=OURS, **layout):
    return float(memory.peak_bytes(columns(**layout), profile))


def test_smollm3_needs_74_of_80_gb():
    """SmolLM3 on 384 H100: dp 192, tp 2, micro-batch 3, ZeRO 0, predicted at 74 GB."""
    layout = columns("SmolLM3-3B", dp=192, tp=2, micro_batch_size=3)
    fit = memory.fits(layout, GPUS["h100"], PROFILES["nanotron"])
    assert fit.fits
    assert fit.needed_bytes / 1e9 == pytest.approx(74, abs=4)


@pytest.mark.parametrize(("zero", "wanted"), [(0, 16.0), (1, 4 + 12 / 8), (2, 2 + 14 / 8), (3, 16 / 8)])
def test_stages_of_zero_as_the_paper_has_them(zero, wanted):
    """arXiv 1910.02054 figure 1: 16 P, 4 P + 12 P / n, 2 P + 14 P / n, 16 P / n bytes."""
    part = states.state_bytes(columns(dp=8, zero=zero), MODELS["8B"], "first", PROFILES["paper"])
    assert sum(part.values()) == pytest.approx(wanted * total_parameters(MODELS["8B"]), rel=1e-3)


@pytest.mark.parametrize(("optimizer", "bytes_"), [("adamw", 8), ("adamw-bf16", 4), ("adamw-8bit", 2), ("sgd", 0)])
def test_optimizers_differ_in_their_states(optimizer, bytes_):
    part = memory.breakdown(columns(), dataclasses.replace(OURS, optimizer=optimizer))
    assert part["optimizer_states"] == pytest.approx(bytes_ * total_parameters(MODELS["8B"]), rel=1e-3)


@pytest.mark.parametrize(("model", "mtp_layers"), [("8B", 0), ("1B", 0), ("Mixtral-8x7B", 0), ("8B", 1)])
@pytest.mark.parametrize("pp", [1, 2, 4])
def test_stages_hold_the_model_once_and_a_tied_embedding_twice(model, mtp_layers, pp):
    shape = dataclasses.replace(MODELS[model], mtp_layers=mtp_layers)
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


@pytest.mark.parametrize(("layout", "per_weight"), [
    ({}, 2), ({"dp": 8}, 6), ({"cp": 2}, 6), ({"dp": 8, "mtp_layers": 1}, 8), ({"dp": 8, "dtype": "fp32"}, 8),
])  # fmt: skip
def test_a_loss_in_chunks_has_the_gradient_of_its_weight_and_where_that_is_reduced_a_copy_of_four_bytes(
    layout, per_weight
):
    """And the logits of a chunk, which are fewer here than the copy, and the gradients of all inputs."""
    profile, shape = dataclasses.replace(OURS, loss_chunk_tokens=64), MODELS["8B"]
    logits = (layout == {}) * 64 * shape.vocab_size * profile.chunk_logit_bytes
    inputs = (per_weight - 4 * (layout != {})) * shape.hidden_size * 4096 / layout.get("cp", 1)
    wanted = per_weight * shape.vocab_size * shape.hidden_size + logits + inputs
    assert memory.logit_bytes(columns() | layout, profile, "first") == pytest.approx(wanted)


def test_a_loss_is_in_chunks_where_there_are_several_and_the_whole_model_is_on_the_rank():
    """Not in those of tensor parallelism, nor of a pipeline whose losses wait for their backward."""
    pipelined = {"pp": 2, "grad_accum": 4}
    for chunk, layout, chunked in (
        (4095, {}, True), (4096, {}, False), (64, {"tp": 2}, False), (64, pipelined, True),
        (64, pipelined | {"pp_schedule": "gpipe"}, False), (64, {"pp_schedule": "gpipe"}, True),
    ):  # fmt: skip
        profiles = [dataclasses.replace(OURS, loss_chunk_tokens=tokens) for tokens in (chunk, 0)]
        found, whole = (memory.logit_bytes(columns(**layout), profile, "last") for profile in profiles)
        assert (found != whole) == chunked, (chunk, layout)
        assert not memory.logit_bytes(columns(**pipelined), profiles[0], "first")
    one, two = (memory.logit_bytes(columns() | {"mtp_layers": layers}, profiles[1], "last") for layers in (0, 1))
    assert two == 2 * one, "multi-token prediction has logits of its own"


def test_modules_that_are_made_again_are_not_stored():
    """In half precision: activations of eight experts a token, 768 wide, not of a shared one; with "moe" also what goes
    into them, their first matrix's output and the router's scores; with "mlp", of dense layers only, the output and
    input of their matrices; with "mla_up_proj" queries, keys and values of latent attention.
    """
    of_experts = 8 * (2 * 2048 + 3 * 2 * 768) + 8 * 128
    for model, modules, wanted in (
        ("Qwen3-30B-A3B", "moe_act", 48 * 8 * 768 * 2), ("8B", "moe_act", 0), ("8B", "mlp", 32 * 3 * 2 * 14336),
        ("Qwen3-30B-A3B", "moe", 48 * of_experts), ("Qwen3-30B-A3B", "moe,moe_act", 48 * of_experts),
        ("Qwen3-30B-A3B", "mlp", 0), ("8B", "mla_up_proj", 0), ("DeepSeek-V3", "moe_act", 61 * 8 * 2048 * 2),
        ("DeepSeek-V3", "mla_up_proj", 61 * 2 * 128 * (3 * 128 + 2 * 64)),
    ):  # fmt: skip
        layout = columns(model, recompute="selective")
        kept, dropped = (
            memory.breakdown(layout | {"recompute_modules": one}, PROFILES["megatron"])["activations"]
            for one in ("core_attn", modules)
        )
        assert kept - dropped == pytest.approx(4096 * wanted), (model, modules)


def test_the_inputs_of_products_are_stored_in_the_bits_of_the_products():
    """Of 8B both norms' outputs and the last matrix's input, per token and layer; of experts also what they get, but
    not what the router gets. torchao stores in bf16 what it computes in 8 bits, in 4 bits what it computes in 4.
    """
    for model, inputs in (("8B", 32 * (2 * 4096 + 14336)), ("Qwen3-30B-A3B", 48 * (2048 + 8 * (2048 + 768)))):
        for trainer, saved in (("megatron", (0, 1, 2 - 9 / 16)), ("torchtitan", (0, 0, 2 - 9 / 16))):
            bf16, *narrow = (
                memory.breakdown(columns(model, dtype=dtype), PROFILES[trainer])["activations"]
                for dtype in ("bf16", "bf16", "mxfp8", "nvfp4")
            )
            assert [bf16 - one for one in narrow] == pytest.approx([4096 * inputs * each for each in saved])


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


@pytest.mark.parametrize("stage", ["first", "last"])
def test_the_heaviest_rank_is_the_one_of_the_largest_total_with_its_own_states(stage):
    """The last stage has the logits, the first the activations of most micro-batches."""
    layout, profile = {
        "first": (columns(pp=4, grad_accum=8), PROFILES["megatron"]),
        "last": (columns("1B", pp=4, grad_accum=8, micro_batch_size=8, recompute="full"), PROFILES["megatron"]),
    }[stage]
    present = [name for name in pipeline.STAGES if pipeline.exists(layout, name)]
    totals = {name: float(memory.breakdown(layout, profile, name)["total"]) for name in present}
    total, states, at = memory.heaviest(layout, profile)
    assert float(total) == max(totals.values()) == float(memory.peak_bytes(layout, profile))
    name = pipeline.STAGES[int(at)]
    assert name == stage
    assert totals[name] == max(totals.values())
    part = memory.breakdown(layout, profile, name)
    assert float(states) == pytest.approx(sum(float(part[kind]) for kind in memory.STATE_KINDS))


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
    unknown = memory.MemoryUse(1e18, memory.usable_bytes(GPUS["cpu"]), None)
    assert (unknown.fits, unknown.over) == (True, False)


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


@pytest.mark.parametrize(("layout", "dense", "experts"), [
    ({"dp": 8, "cp": 2}, 16, 16), ({"dp": 8, "cp": 2, "tp": 2}, 16, 16), ({"dp": 8, "cp": 2, "tp": 2, "ep": 4}, 16, 4),
    ({"dp": 8, "tp": 2, "ep": 4, "etp": 1}, 8, 4), ({"dp": 2, "ep": 8}, 2, 1),
])  # fmt: skip
def test_zero_shards_over_the_copies_of_a_weight(layout, dense, experts):
    assert states.shards(layout) == (dense, experts)


def test_layers_pass_whole_with_their_gradients_where_zero_shards_both():
    each = OURS.gathered_layers * 2 + OURS.gathered_gradient_bytes
    for zero, wanted in ((0, 0), (3, each * layer_parameters(MODELS["8B"]) / 2)):
        assert states.passing_layer_bytes(columns(dp=8, tp=2, zero=zero), MODELS["8B"], OURS) == wanted


@pytest.mark.parametrize("pp", [1, 2, 4])
def test_learned_positions_are_a_row_each_on_the_rank_that_embeds(pp):
    plain = MODELS["tiny-1M"]
    learned = dataclasses.replace(plain, learned_positions=512)
    for stage in pipeline.STAGES:
        held = [sum(states.stage_parameters({"pp": pp}, shape, stage, EVEN)) for shape in (plain, learned)]
        assert held[1] - held[0] == 512 * 128 * (stage == "first" or (pp == 1 and stage == "last"))
