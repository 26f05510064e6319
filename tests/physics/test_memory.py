"""The memory model alone: invariants for any data, and published worked examples."""

import dataclasses
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.calibration import calibrate
from sweep.physics import memory, pipeline, states
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.physics.profiles import PROFILES, profile_of
from sweep.physics.schedules import SCHEDULES
from sweep.physics.shapes import ModelShape, total_parameters

OURS = PROFILES["ours"]
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


def test_placement_by_cost_counts_the_output_projection():
    """nanotron, 1B: the output projection costs as much as 4 layers of 16, so two stages hold 11 and 5."""
    shape = MODELS["1B"]
    found = [float(pipeline.layers({"pp": 2}, shape, stage, "cost")) for stage in ("first", "last")]
    assert found == [11, 5]


@given(st.sampled_from(["ours", "nanotron", "megatron", "torchtitan"]), st.sampled_from([1, 2, 4]), st.integers(0, 2))
def test_more_sharding_never_needs_more_states(profile, tp, zero):
    def held(zero):
        layout = columns(dp=8, tp=tp, zero=zero, grad_accum=4)
        return sum(states.state_bytes(layout, MODELS["8B"], "first", PROFILES[profile]).values())

    assert held(zero + 1) <= held(zero)


@given(
    st.sampled_from(["ours", "nanotron", "megatron"]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(["none", "selective", "full"]),
    st.integers(1, 16),
)
def test_a_larger_micro_batch_always_needs_more(profile, tp, pp, recompute, micro):
    layout = {"tp": tp, "pp": pp, "dp": 8, "grad_accum": 8, "recompute": recompute}
    smaller, larger = (peak(PROFILES[profile], **layout, micro_batch_size=m) for m in (micro, micro + 1))
    assert smaller < larger


@pytest.mark.parametrize("tp", [1, 2, 8])
@pytest.mark.parametrize("profile", ["ours", "nanotron", "megatron", "torchtitan"])
def test_more_recomputation_needs_less(profile, tp):
    """But if all outputs of products are stored: under a wide tp those yet to be scattered are most of all."""
    none, selective, full = (
        peak(PROFILES[profile], tp=tp, micro_batch_size=4, recompute=r) for r in ("none", "selective", "full")
    )
    assert full < selective
    assert full < none
    assert selective <= none or (PROFILES[profile].selective == "cheap" and tp == 8)


def test_selective_recomputation_that_keeps_partial_sums_keeps_more_under_a_wide_tp():
    found = [peak(OURS, tp=8, micro_batch_size=4, recompute=r) for r in ("none", "selective")]
    assert found[0] < found[1]


def test_schedules_keep_as_many_micro_batches_as_they_must():
    layout = {"pp": 4, "grad_accum": 16, "virtual_stages": 2}
    held = {s: float(pipeline.in_flight(layout | {"pp_schedule": s}, "first")) for s in SCHEDULES}
    assert held["1f1b"] == 4
    assert held["gpipe"] == held["looped_bfs"] == 16
    assert held["interleaved_1f1b"] == 4 + 3 / 2
    assert held["zbv_zero_bubble"] == 4
    assert [float(pipeline.in_flight(layout, stage)) for stage in pipeline.STAGES] == [4, 3, 1]


def test_flash_attention_keeps_no_scores():
    with_scores = dataclasses.replace(OURS, flash_attention=False)
    for sequence in (1024, 8192):
        retained = [
            memory.step_bytes(columns(sequence_length=sequence), p, "first")["activations"] for p in (OURS, with_scores)
        ]
        scores = 2 * 32 * sequence**2 * 32  # two bytes, heads, pairs, layers
        assert retained[1] - retained[0] == pytest.approx(scores - 4 * 32 * sequence * 32)


def test_grouped_query_attention_keeps_fewer_keys_and_values():
    grouped, full = MODELS["Llama-3-8B"], dataclasses.replace(MODELS["Llama-3-8B"], num_kv_heads=32)
    retained = [
        memory.step_bytes(s.as_dict() | {"sequence_length": 4096}, OURS, "first")["activations"]
        for s in (grouped, full)
    ]
    assert retained[1] - retained[0] == 2 * 2 * 24 * 128 * 4096 * 32


def test_v_schedules_put_logits_on_the_first_rank():
    layout = columns(pp=4, grad_accum=8, pp_schedule="zbv_zero_bubble")
    assert memory.breakdown(layout, OURS, "first")["logits"] > 0
    assert memory.breakdown(layout, OURS, "last")["logits"] == 0


def test_unknown_memory_lets_everything_fit():
    fit = memory.fits(columns("80B", dp=np.array([1, 8])), GPUS["cpu"])
    assert fit.fits.tolist() == [True, True]
    assert fit.limit_bytes is None


def test_reasons_come_with_their_numbers():
    fit = memory.fits(columns("80B", dp=np.array([1, 512]), zero=3, recompute="full"), GPUS["h100"])
    assert fit.fits.tolist() == [False, True]
    assert fit.over.tolist() == [True, False]
    assert fit.needed_bytes[0] > fit.limit_bytes > fit.available_bytes


def test_calibration_follows_measurements_nearby_and_nothing_far_away():
    known = columns(tp=np.array([1, 2, 4]), dp=8, pp=1, grad_accum=4, gpus_per_node=8)
    calibration = calibrate(known, np.ones(3), 1.2 * np.ones(3))
    assert calibration.scale(columns(tp=2, dp=8, pp=1, grad_accum=4)) == pytest.approx(1.2, abs=0.05)
    far = columns("tiny-1M", tp=1, dp=512, pp=64, grad_accum=512)
    assert calibration.scale(far) == pytest.approx(1.0, abs=0.01)
    assert calibration.spread(far) > 1.5 * calibration.spread(columns(tp=2, dp=8, pp=1, grad_accum=4))


def test_calibration_without_any_measurement_changes_nothing():
    nothing = calibrate(columns(), np.array([1.0]), np.array([np.nan]))
    assert nothing.scale(columns(tp=np.array([1, 2]))).tolist() == [1, 1]


def test_a_million_candidates_take_seconds():
    rng = np.random.default_rng(0)
    pick = {
        "tp": [1, 2, 4, 8],
        "pp": [1, 2, 4, 8],
        "dp": [1, 8, 64],
        "zero": [0, 1, 2, 3],
        "micro_batch_size": [1, 2, 4],
    }
    many = columns(**{name: rng.choice(values, 1_000_000) for name, values in pick.items()}, grad_accum=8)
    started = time.process_time()
    assert memory.fits(many, GPUS["h100"]).fits.shape == (1_000_000,)
    assert time.process_time() - started < 6


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
