"""Small runs of a workload, for its checks."""

from dataclasses import replace
from typing import Any

from sweep.contract import FURTHER, LAYOUT_FIELDS, Layout, Run, Scalar, Workload
from sweep.physics.catalogue import MODELS

MODEL = "tiny-1M"
EXPERTS = {"num_experts": 4, "experts_per_token": 2, "moe_intermediate_size": 64}


def example_run(workload: Workload, **changes: Any) -> Run:
    """A run of a tiny model that fits any CPU: two ranks if the workload can vary ``dp``, two timed iterations.

    ``changes``: fields of ``sweep.contract.Run`` and of its layout; ``gpus_per_node`` follows from the layout.
    """
    layout: dict[str, Scalar] = {"dp": 2, "grad_accum": 2, "zero": 0, "recompute": "none", "pp_schedule": "1f1b"}
    chosen = {name: _valid(workload, name, value) for name, value in layout.items() if name in workload.axes}
    asked = {name: changes.pop(name) for name in list(changes) if name in LAYOUT_FIELDS}
    made = Layout(**{**chosen, **asked})
    values = {
        "workload": workload.name,
        "model": MODEL,
        "shape": MODELS[MODEL].as_dict(),
        "nodes": 1,
        "gpus_per_node": made.gpus,
        "sequence_length": 128,
        "layout": made,
        "dtype": _valid(workload, "dtype", "fp32") if "dtype" in workload.axes else "bf16",
        "warmup_iterations": 1,
        "iterations": 2,
    }
    return Run(**{**values, **changes})


def variants(workload: Workload, run: Run) -> dict[str, tuple[Run, Run]]:
    """For each declared axis two runs that differ by it alone. An axis that has one valid value is left out."""
    pairs = {}
    for axis in sorted(workload.axes & {*LAYOUT_FIELDS, "dtype", "compile"}):
        base = _where_it_matters(axis, run)
        holder = base.layout if axis in LAYOUT_FIELDS else base
        other = _other(workload, axis, getattr(holder, axis))
        if other is not None:
            pairs[axis] = (base, _changed(base, axis, other))
    return pairs


def row_of(workload: Workload, run: Run) -> dict[str, Any]:
    """A run's values of the columns that a workload's rules see."""
    facts = ("nodes", "gpus", "gpus_per_node", "sequence_length", "global_batch_tokens", "dtype", "compile")
    return {
        "model": run.model,
        **run.shape,
        **{name: getattr(run.layout, name) for name in LAYOUT_FIELDS},
        **{name: getattr(run, name) for name in facts},
        **workload.params,
        **run.params,
    }


def _valid(workload: Workload, name: str, wanted: Scalar) -> Scalar:
    choices = workload.choices.get(name, (wanted,))
    return wanted if wanted in choices else choices[0]


def _other(workload: Workload, axis: str, value: Scalar) -> Scalar:
    if axis in FURTHER and axis not in workload.choices:
        return None
    if axis in workload.choices:
        return next((choice for choice in workload.choices[axis] if choice != value), None)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return 1 if axis == "zero" else 2 * value
    return {"recompute": "full", "pp_schedule": "gpipe", "dtype": "fp16"}.get(axis)


def _where_it_matters(axis: str, run: Run) -> Run:
    """The run with a pipeline for its schedule, and with experts for their width."""
    if axis == "pp_schedule" and run.layout.pp == 1:
        return _changed(run, "pp", 2)
    if axis in ("ep", "routing", "dispatcher") and not run.shape.get("num_experts"):
        return replace(run, shape={**run.shape, **EXPERTS})
    return run


def _changed(run: Run, axis: str, value: Scalar) -> Run:
    if axis not in LAYOUT_FIELDS:
        return replace(run, **{axis: value})  # type: ignore[arg-type]
    layout = replace(run.layout, **{axis: value})  # type: ignore[arg-type]
    return replace(run, layout=layout, gpus_per_node=layout.gpus)
