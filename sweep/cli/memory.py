"""`sweep memory`: what a layout needs on a GPU, by kind, stage and time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from sweep.cli.command import SweepCommand
from sweep.cli.names import GPU_NAMES, MODEL_NAMES, TRAINER_NAMES, OneOf, json_option, name_option
from sweep.contract import FORMATS, LAYOUT
from sweep.errors import Mistake, SweepError
from sweep.physics.hardware import GIB, GPUS
from sweep.physics.profiles import OPTIMIZER_STATE_BYTES, PROFILES, with_frozen_weights
from sweep.physics.schedules import SCHEDULES

if TYPE_CHECKING:
    from sweep.physics.hardware import Gpu
    from sweep.physics.profiles import MemoryProfile
    from sweep.physics.shapes import ModelShape

_WIDTH = click.IntRange(min=1)
"""of an axis of the layout"""
_RULES = {
    "heads_by_tp": "--tp",
    "kv_heads_by_tp": "--tp",
    "layers_by_stages": "--pp",
    "sequence_by_cp": "--cp",
    "experts_by_ep": "--ep",
    "ep_without_experts": "--ep",
}
"""a plan's general rule on one option and the shape -> the option"""


class _Model(OneOf):
    """A name of the catalogue, or a shape as in a grid: the text itself, and its shape."""

    def __init__(self) -> None:
        super().__init__("model", MODEL_NAMES)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        """Raises SweepError with every mistake."""
        return value, _shape(value)


@click.command(cls=SweepCommand)
@click.argument("model", type=_Model())
@click.option("--tp", type=_WIDTH, default=1, help="Tensor-parallel width.")
@click.option("--pp", type=_WIDTH, default=1, help="Pipeline stages.")
@click.option("--dp", type=_WIDTH, default=1, help="Data-parallel replicas.")
@click.option("--cp", type=_WIDTH, default=1, help="Context-parallel width.")
@click.option("--ep", type=_WIDTH, default=1, help="Expert-parallel width.")
@click.option("--zero", type=click.IntRange(0, 3), default=0, help="ZeRO stage.")
@click.option("--micro-batch-size", type=_WIDTH, default=1, help="Sequences per micro-batch.")
@click.option("--grad-accum", type=_WIDTH, help="Micro-batches per step. Default: as many as pp.")
@click.option("--recompute", type=click.Choice(["none", "selective", "full"]), default="none")
@click.option("--sequence-length", type=click.IntRange(min=1), default=4096, show_default=True)
@name_option(
    "--pp-schedule", kind="schedule", names=lambda: tuple(SCHEDULES), default="1f1b", show_default=True,
    help="Pipeline schedule.",
)  # fmt: skip
@click.option(
    "--dtype", type=click.Choice(["bf16", "fp16", "fp32", "fp8", *FORMATS]), default="bf16", show_default=True
)
@name_option(
    "--optimizer", kind="optimizer", names=lambda: tuple(OPTIMIZER_STATE_BYTES), help="Default: the profile's."
)
@name_option(
    "--profile", "profile_name", kind="profile", names=TRAINER_NAMES, default="builtin", show_default=True,
    help="Memory profile.",
)  # fmt: skip
@click.option("--frozen-weights", is_flag=True, help="Train only adapters (LoRA): no optimizer states of the weights.")
@name_option(
    "--gpu",
    "gpu_name",
    kind="GPU",
    names=GPU_NAMES,
    default="h100",
    show_default=True,
    help="GPU type, for its memory.",
)
@click.option("--gpus-per-node", type=click.IntRange(min=1), default=8, show_default=True)
@json_option
def memory(model: tuple[str, ModelShape], **options: Any) -> int:
    """Predict the memory of one GPU for MODEL (a name of the catalogue, a shape, or a config.json) by component.

    Computed by formulas, without a run: weights, gradients, master copies and optimizer states under ZeRO, activations
    in flight, logits and buffers. What torch does not count (CUDA context, NCCL) is shown separately.

    `sweep plan GRID --show runs` lists the layouts of a grid that fit, fastest first.

    \b
    Examples:
      sweep memory 8B --tp 4 --dp 8 --zero 1 --micro-batch-size 2
      sweep memory SmolLM3-3B --dp 384 --micro-batch-size 3
      sweep memory Llama-2-13B --sequence-length 1024 --profile paper
      sweep memory '{num_layers: 40, hidden_size: 5120, num_heads: 40, intermediate_size: 20480, vocab_size: 51200}'
    """
    name, shape = model
    columns, profile = _columns(shape, options), PROFILES[options["profile_name"]]
    profile = replace(profile, optimizer=options["optimizer"] or profile.optimizer)
    profile = with_frozen_weights(profile) if options["frozen_weights"] else profile
    _check(name, columns, profile)
    document = _document(name, columns, GPUS[options["gpu_name"]], profile)
    click.echo(json.dumps(document) if options["as_json"] else _text(document))
    return 0


def _check(model: str, columns: Mapping[str, Any], profile: MemoryProfile) -> None:
    """Raises SweepError for what no trainer can run."""
    from sweep.planning.rules import GENERAL, layers_by_stages

    rules = {rule.name: rule for rule in (*GENERAL, layers_by_stages(profile.stages_beyond_layers))}
    broken = [rule for name, rule in rules.items() if name in _RULES and rule.broken(columns)]
    if broken:
        texts = [(rule.reason.format(**columns, model=model), _RULES[rule.name]) for rule in broken]
        raise SweepError([Mistake(text, path=option) for text, option in texts])


def _shape(model: str) -> ModelShape:
    """The shape of a catalogue name, or one written as in a grid: {num_layers: …, hidden_size: …}.

    Raises SweepError with every mistake.
    """
    from sweep.inputs.load import read_config
    from sweep.inputs.models import read_models
    from sweep.inputs.yaml_lines import load

    inline, file = model.lstrip().startswith("{"), model.endswith(".json")
    mapping = f"models:\n  model: {json.dumps(model) if file else model}"
    document = load(mapping if inline or file else f"models: [{json.dumps(model)}]", "MODEL")
    if mistakes := document.located(read_models(document, read_config)):
        if not inline:  # the document is made here
            mistakes = [replace(one, file=None, line=None, path=model if file else "MODEL") for one in mistakes]
        raise SweepError(mistakes)
    shape: ModelShape = next(iter(document.value["models"].values()))
    return shape


def _columns(shape: ModelShape, options: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: options[name] for name in (*LAYOUT, "sequence_length", "dtype", "gpus_per_node")}
    return {**shape.as_dict(), **given, "grad_accum": options["grad_accum"] or options["pp"]}


def _document(model: str, columns: Mapping[str, Any], gpu: Gpu, profile: MemoryProfile) -> dict[str, Any]:
    """All output as JSON values: bytes as whole numbers."""
    from sweep.physics import memory as physics
    from sweep.physics import pipeline

    stages = [stage for stage in pipeline.STAGES if pipeline.exists(columns, stage)]
    kinds = {stage: _whole(physics.breakdown(columns, profile, stage)) for stage in stages}
    heaviest = max(stages, key=lambda stage: kinds[stage]["total"])
    fit = physics.fits(columns, gpu, profile)
    line = physics.timeline(columns, profile, heaviest)
    return {
        "model": model,
        "gpu": gpu.name,
        "profile": profile.name,
        "optimizer": profile.optimizer,
        "layout": {name: columns[name] for name in (*LAYOUT, "sequence_length", "dtype")},
        "stages": kinds,
        "heaviest_stage": heaviest,
        "timeline": {phase: _whole(part) for phase, part in line.items()},
        "outside_torch_bytes": int(physics.outside_torch_bytes(columns)),
        "needed_bytes": int(fit.needed_bytes),
        "available_bytes": None if fit.available_bytes is None else int(fit.available_bytes),
        "limit_bytes": None if fit.limit_bytes is None else int(fit.limit_bytes),
        "fits": None if fit.available_bytes is None else not fit.over,
        "plan_keeps": bool(fit.fits),
    }


def _whole(part: Mapping[str, Any]) -> dict[str, int]:
    return {kind: round(float(value)) for kind, value in part.items()}


def _text(document: Mapping[str, Any]) -> str:
    stages = document["stages"]
    short = " ".join(f"{name}={value}" for name, value in document["layout"].items())
    lines = [f"{document['model']} on {document['gpu']}, as {document['profile']} trains: {short}", ""]
    lines.append("GiB on one GPU".ljust(24) + "".join(f"{stage + ' stage':>14}" for stage in stages))
    for kind in next(iter(stages.values())):
        if any(stages[stage][kind] for stage in stages):
            values = "".join(f"{stages[stage][kind] / GIB:>14.2f}" for stage in stages)
            lines.append(kind.replace("_", " ").ljust(24) + values)
    lines += ["", f"Time line of the {document['heaviest_stage']} stage, GiB:"]
    lines += [f"  {phase:<32}{part['total'] / GIB:>8.2f}" for phase, part in document["timeline"].items()]
    return "\n".join([*lines, "", _verdict(document)])


def _verdict(document: Mapping[str, Any]) -> str:
    outside, needed = document["outside_torch_bytes"] / GIB, document["needed_bytes"] / GIB
    text = f"With {outside:.1f} GiB that torch does not count (CUDA context, NCCL): {needed:.1f} GiB"
    if document["available_bytes"] is None:
        return f"{text}. How much memory {document['gpu']} has is not known."
    text += f" of {document['available_bytes'] / GIB:.1f} GiB:"
    if document["fits"]:
        return f"{text} fits."
    if not document["plan_keeps"]:
        return f"{text} does NOT fit, and a plan rejects it."
    over = document["needed_bytes"] / document["available_bytes"] - 1
    margin = document["limit_bytes"] / document["available_bytes"] - 1
    return f"{text} over by {over:.1%}, within the model's error of {margin:.0%}: a plan accepts it."
