"""`sweep memory --exact`: the training step of our own workload, traced for one rank without a GPU."""

from __future__ import annotations

import importlib.metadata
import json
import time
from typing import TYPE_CHECKING, Any

import click

from sweep.errors import Mistake, SweepError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sweep.contract import Run, Workload
    from sweep.physics.shapes import ModelShape

_FORMULAS = {
    "weights": ("master_weights",),
    "gathered_weights": ("weights", "gathered"),
    "gradients": ("gradients", "gradient_buckets"),
    "optimizer_states": ("optimizer_states",),
    "activations": ("activations", "logits"),
    "other": ("workspace", "pipeline_buffers", "fixed", "fragmentation"),
}
"""kind of the trace -> kinds of the formulas. FSDP has fp32 weights (the formulas' master copy) and gathers copies"""
_WEIGHTS = {"adamw": "fp32", "adamw-bf16": "bf16"}
"""optimizer -> the workload's weights_dtype that corresponds to it"""


def exact(
    model: str,
    shape: ModelShape,
    columns: Mapping[str, Any],
    optimizer: str,
    options: Mapping[str, Any],
    unit: float,
) -> int:
    """Trace and print. Raises SweepError if our workload rejects the layout, or torch is missing or cannot trace it."""
    from sweep.plugins import find_workload

    if optimizer not in _WEIGHTS:
        known = " or ".join(_WEIGHTS)
        raise SweepError(Mistake(f"our workload has no {optimizer}", path="--optimizer", remedy=known))
    params = {"weights_dtype": _WEIGHTS[optimizer]}
    workload = find_workload("transformer")
    _refuse(workload, {**workload.params, **columns, **params, "compile": False})
    formulas, stage, name = _formulas(columns, params, options)
    run = _run(model, shape, columns, params)
    traced, seconds = _traced(run, stage, gpu_kernels=options["gpu_name"].lower() != "cpu")
    document = {
        "model": model,
        "gpu": options["gpu_name"],
        "optimizer": optimizer,
        "layout": {**vars(run.layout), "sequence_length": run.sequence_length, "dtype": run.dtype},
        "stage": stage,
        "rank": traced.rank,
        "world_size": run.layout.gpus,
        "peak_bytes": traced.peak_bytes,
        "parts": dict(traced.parts),
        "parameters": traced.parameters,
        "formulas": {"stage": name, "peak_bytes": sum(formulas.values()), "parts": formulas},
        "micro_batches_traced": traced.micro_batches,
        "schedule_ran": run.layout.pp > 1,
        "even_routing": shape.num_experts > 0,
        "seconds": round(seconds, 2),
    }
    click.echo(json.dumps(document) if options["as_json"] else _text(document, options["unit"], unit))
    return 0


def _refuse(workload: Workload, columns: Mapping[str, Any]) -> None:
    """Raise for what our workload rejects, every reason at once."""
    from sweep.planning.rules import applies

    if columns["dtype"] not in workload.choices["dtype"]:
        raise SweepError(Mistake(f"our workload has no {columns['dtype']}", path="--dtype", remedy="bf16 or fp32"))
    version = _torch_version()
    broken = [rule for rule in workload.rules if applies(rule, version) and bool(rule.broken(columns))]
    if broken:
        raise SweepError([Mistake(rule.reason.format(**columns), path=rule.name) for rule in broken])


def _torch_version() -> str | None:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def _formulas(
    columns: Mapping[str, Any], params: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[dict[str, int], int, str]:
    """(bytes by kind of the trace, stage, the formulas' name of it): of the requested stage, or of the heaviest."""
    from sweep.physics import memory, pipeline
    from sweep.physics.profiles import profile_of

    profile = profile_of("transformer", params)
    assert profile is not None
    last = columns["pp"] - 1
    numbers = {"first": 0, "middle": 1, "last": last}
    if options["stage"] is None:
        totals = memory.stage_totals(columns, profile)
        name = max(pipeline.STAGES, key=lambda stage: float(totals[stage]))
        number = numbers[name]
    else:
        number = options["stage"]
        name = "first" if number == 0 else "last" if number == last else "middle"
    found = memory.breakdown(columns, profile, name)
    return {kind: round(sum(float(found[k]) for k in kinds)) for kind, kinds in _FORMULAS.items()}, number, name


def _run(model: str, shape: ModelShape, columns: Mapping[str, Any], params: Mapping[str, Any]) -> Run:
    import dataclasses

    from sweep.contract import Layout, Run

    layout = Layout(**{field.name: columns[field.name] for field in dataclasses.fields(Layout)})
    per_node = min(columns["gpus_per_node"], layout.gpus)
    return Run(
        workload="transformer",
        model=model,
        shape=shape.as_dict(),
        nodes=-(-layout.gpus // per_node),
        gpus_per_node=per_node,
        sequence_length=columns["sequence_length"],
        layout=layout,
        dtype=columns["dtype"],
        params=dict(params),
    )


def _traced(run: Run, stage: int, *, gpu_kernels: bool) -> tuple[Any, float]:
    """(what one rank of the stage holds, seconds that the trace took)."""
    start = time.perf_counter()
    try:
        from bench_workloads.transformer import exact
    except ImportError as error:
        text = f"--exact runs the training code, which needs torch: {error}"
        raise SweepError(Mistake(text, remedy="install torch, or omit --exact: the formulas do not need it")) from error
    try:
        return exact.trace(run, stage, gpu_kernels=gpu_kernels), time.perf_counter() - start
    except (exact.NotTraceableError, RuntimeError, NotImplementedError, AttributeError) as error:
        text = f"cannot be traced: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        raise SweepError(Mistake(text, path="--exact", remedy="omit it: the formulas cover this layout")) from error


def _text(document: Mapping[str, Any], unit: str, size: float) -> str:
    formulas, layout = document["formulas"], document["layout"]
    short = " ".join(f"{name}={value}" for name, value in layout.items())
    where = f"rank {document['rank']} of {document['world_size']:,}"
    if layout["pp"] > 1:
        where += f", stage {document['stage']} of {layout['pp']}"
    lines = [f"{document['model']}, our workload's own step on {where}: {short}", ""]
    lines.append(unit.ljust(24) + f"{'traced':>12}{'formulas':>12}")
    rows = {**document["parts"], "peak": document["peak_bytes"]}
    theirs = {**formulas["parts"], "peak": formulas["peak_bytes"]}
    lines += [f"{kind.replace('_', ' '):<24}{rows[kind] / size:>12.2f}{theirs[kind] / size:>12.2f}" for kind in rows]
    return "\n".join([*lines, "", _how(document)])


def _how(document: Mapping[str, Any]) -> str:
    """What was traced, and the formulas' deviation from it."""
    layout, seen = document["layout"], document["micro_batches_traced"]
    distance = document["formulas"]["peak_bytes"] / document["peak_bytes"] - 1
    text = [
        f"The formulas give {distance:+.1%}. Traced in {document['seconds']:.0f} s: {document['parameters']:,} weights"
    ]
    if seen < layout["grad_accum"]:
        text.append(f"{seen} of {layout['grad_accum']} micro-batches, further ones need no more memory")
    if layout["pp"] > 1:
        text.append(f"the {layout['pp_schedule']} schedule itself, with empty tensors from its neighbours")
    if document["even_routing"]:
        text.append("every expert gets equally many tokens")
    return "; ".join(text) + ".\nBytes of tensors: no fragmentation, CUDA context or NCCL."
