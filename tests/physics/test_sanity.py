"""Predictions of inputs that no table has: finite, never faster than hardware, and monotonic where physics says so."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from sweep.physics import flops
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.physics.profiles import PROFILES, with_frozen_weights
from sweep.physics.step_time import PARTS, predict

TRAINERS = ("builtin", "torchtitan", "nanotron", "megatron", "deepspeed", "picotron")
KINDS = ("v100", "a100", "h100", "h200", "b200", "gb200", "b300", "gb300", "mi300x", "mi355x")
DENSE = ("1B", "Llama-3-8B", "Llama-3-70B", "Llama-3.1-405B", "Qwen3-0.6B")
MIXTURES = ("Mixtral-8x7B", "Qwen3-30B-A3B", "Qwen3-235B-A22B", "GPT-OSS-120B", "DeepSeek-V3")
BASE = {"sequence_length": 4096, "gpus_per_node": 8, "dtype": "bf16", "zero": 1, "dp": 8, "grad_accum": 8}
PLAIN = {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "etp": 0, "micro_batch_size": 1, "recompute": "none", "compile": False}
DENSE_LAYOUTS = {
    "one GPU": {"dp": 1, "zero": 0},
    "two nodes": {"dp": 16},
    "512 nodes": {"dp": 4096, "grad_accum": 1},
    "tensor across nodes": {"dp": 1, "tp": 16},
    "128k tokens, context 8": {"dp": 1, "cp": 8, "sequence_length": 131072, "grad_accum": 1},
    "a million tokens, context 32": {"dp": 1, "tp": 8, "cp": 32, "sequence_length": 1 << 20, "grad_accum": 1},
    "large micro-batch": {"micro_batch_size": 64},
    "zero 3, 64 nodes": {"dp": 512, "zero": 3, "grad_accum": 1},
    "pipeline": {"dp": 2, "pp": 8, "grad_accum": 32},
    "everything recomputed": {"recompute": "full"},
    "compiled": {"compile": True},
}
MIXTURE_LAYOUTS = {
    "one GPU": {"dp": 1, "zero": 0},
    "experts 8": {"ep": 8},
    "experts 64": {"dp": 64, "ep": 64},
    "experts 64, tensor 2": {"dp": 32, "tp": 2, "ep": 64, "etp": 1},
    "experts 8, tensor 8": {"dp": 8, "tp": 8, "ep": 8},
    "experts 32, pipeline": {"dp": 32, "pp": 8, "ep": 32, "grad_accum": 32},
    "short": {"ep": 8, "sequence_length": 256},
}
DTYPES = {"v100": ("fp16",), "a100": ("bf16",)}


def layouts():
    """(model, name of the layout, layout), for each model all layouts of its kind."""
    for models, named in ((DENSE, DENSE_LAYOUTS), (MIXTURES, MIXTURE_LAYOUTS)):
        for model, (name, layout) in itertools.product(models, named.items()):
            yield model, name, PLAIN | BASE | layout


def table(rows):
    """Columns of (model, layout) pairs: one prediction of all, which a plan of many candidates is too."""
    found = [MODELS[model].as_dict() | layout for model, layout in rows]
    return {name: np.array([row[name] for row in found]) for name in found[0]}


def columns(model, **layout):
    return MODELS[model].as_dict() | BASE | layout


def total(columns, gpu, profile):
    return sum(predict(columns, GPUS[gpu] if isinstance(gpu, str) else gpu, profile).values())


def seconds(model, gpu="h100", profile="megatron", **layout):
    profile = PROFILES[profile] if isinstance(profile, str) else profile
    return float(total(columns(model, **layout), gpu, profile))


def flops_of_step(model, layout, profile):
    """Model FLOPs of a step per GPU, the causal half of attention counted."""
    ranks = np.prod([layout[axis] for axis in ("dp", "tp", "pp", "cp")])
    tokens = layout["dp"] * layout["micro_batch_size"] * layout["grad_accum"] * layout["sequence_length"]
    each = flops.model_flops_per_token(MODELS[model], layout["sequence_length"], frozen_weights=profile.frozen_weights)
    return tokens * each / ranks


@pytest.mark.parametrize("trainer", TRAINERS)
def test_every_part_is_a_positive_number_and_no_utilization_is_above_three_quarters(trainer):
    """The best products reach 87 % of an A100's peak and 80 % of an H100's; no published step is above 70 %."""
    for frozen, gpu in itertools.product((False, True), KINDS):
        profile = with_frozen_weights(PROFILES[trainer]) if frozen else PROFILES[trainer]
        cases = [
            (model, name, layout | {"dtype": dtype})
            for model, name, layout in layouts()
            for dtype in DTYPES.get(gpu, ("bf16", "fp8"))
        ]
        parts = predict(table((model, layout) for model, _, layout in cases), GPUS[gpu], profile)
        assert tuple(parts) == PARTS
        for part, values in parts.items():
            assert np.all((values >= 0) & (values < np.inf)), (trainer, gpu, part, values)
        for (model, name, layout), step_s in zip(cases, sum(parts.values()), strict=True):
            found = flops_of_step(model, layout, profile) / step_s / GPUS[gpu].peaks_flops[layout["dtype"]]
            assert 0 < found < 0.75, (trainer, model, name, gpu, layout["dtype"], frozen, found)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_more_work_takes_longer(trainer):
    for model, layouts in (("Llama-3-8B", DENSE_LAYOUTS), ("Qwen3-30B-A3B", MIXTURE_LAYOUTS)):
        for name, layout in layouts.items():
            base = layout | {"grad_accum": layout.get("grad_accum", 8), "zero": layout.get("zero", 1)}
            once = seconds(model, profile=trainer, **base)
            deeper = MODELS[model].num_layers * 2
            further = {
                "micro-batches": {"grad_accum": 2 * base["grad_accum"]},
                "sequences": {"micro_batch_size": 2 * layout.get("micro_batch_size", 1)},
                "tokens": {"sequence_length": 2 * layout.get("sequence_length", 4096)},
                "layers": {"num_layers": deeper},
                "vocabulary": {"vocab_size": 2 * MODELS[model].vocab_size},
            }
            for kind, more in further.items():
                assert seconds(model, profile=trainer, **(base | more)) > once, (trainer, model, name, kind)


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("model", ["Llama-3-8B", "Llama-3-70B", "Qwen3-30B-A3B"])
def test_what_adds_work_or_sends_more_is_never_faster(trainer, model):
    base = {"dp": 16}
    plain = seconds(model, profile=trainer, **base)
    assert seconds(model, profile=trainer, **base, recompute="full") > plain
    assert seconds(model, profile=trainer, **base, zero=3) >= plain * 0.97  # sharded states are updated faster
    frozen = with_frozen_weights(PROFILES[trainer])
    assert seconds(model, profile=frozen, **base) < plain
    for grown in ({"dp": 64}, {"dp": 512}, {"dp": 4096}):
        assert seconds(model, profile=trainer, **grown) > plain * 0.97
    if "A3B" in model:
        widths = [seconds(model, profile=trainer, dp=64, ep=ep) for ep in (8, 16, 32, 64)]
        assert widths == sorted(widths)


FASTER = [
    ("a100", "h100"),
    ("h100", "h200"),
    ("h200", "b200"),
    ("b200", "b300"),
    ("gb200", "gb300"),
    ("a100-40gb", "a100"),
]


@pytest.mark.parametrize(("slow", "fast"), FASTER)
def test_a_later_kind_is_not_slower(slow, fast):
    """But by 3 % where a tiny model's pipeline waits for its host: the bubble is as long as that of the stage with the
    output projection, which waits only once its products are fast."""
    cases = [*layouts()]
    all_of_them = table((model, layout) for model, _, layout in cases)
    for trainer in TRAINERS:
        ratios = total(all_of_them, fast, PROFILES[trainer]) / total(all_of_them, slow, PROFILES[trainer])
        for (model, name, layout), ratio in zip(cases, ratios, strict=True):
            assert ratio <= (1.03 if layout["pp"] > 1 else 1.001), (model, name, trainer)


@pytest.mark.parametrize("rate", ["network_bytes_per_s", "link_bytes_per_s", "memory_bytes_per_s"])
def test_slower_hardware_is_not_faster(rate):
    gpu = GPUS["h100"]
    slow = replace(gpu, **{rate: getattr(gpu, rate) / 4})
    cases = [*layouts()]
    all_of_them = table((model, layout) for model, _, layout in cases)
    for trainer in TRAINERS:
        fast_s, slow_s = (total(all_of_them, one, PROFILES[trainer]) for one in (gpu, slow))
        wrong = [case for case, faster, slower in zip(cases, fast_s, slow_s, strict=True) if slower < faster * 0.9999]
        assert not wrong, (rate, trainer, wrong)


def test_a_deep_model_of_one_layer_each_stage_and_one_of_a_single_layer_are_predicted():
    single = seconds("Llama-3-8B", num_layers=1)
    assert 0 < single < seconds("Llama-3-8B", num_layers=2)
    further = seconds("Llama-3-8B", mtp_layers=1) / seconds("Llama-3-8B")
    assert 1 + 1 / 32 < further < 1 + 4 / 32, "a layer, and a product with the vocabulary of two"
    assert np.isfinite(seconds("Llama-3-8B", pp=32, dp=1, grad_accum=64))
    assert np.isfinite(
        seconds("Llama-3-8B", num_layers=1, num_experts=8, experts_per_token=2, moe_intermediate_size=64)
    )
