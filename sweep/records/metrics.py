"""From what the ranks of an attempt measured to the metrics of its record. Pure."""

from __future__ import annotations

import dataclasses
import math
import statistics
from typing import TYPE_CHECKING, Any

from sweep.outcomes import Outcome
from sweep.physics import flops, shapes
from sweep.physics.hardware import GPUS
from sweep.physics.profiles import profile_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sweep.contract import Measurement, Run

STRAGGLER = 1.10
"""A rank is slow where its median step takes this many times the median of all ranks' medians."""

TERA = 1e12


def refusal(run: Run, measurements: Sequence[Measurement | None]) -> tuple[Outcome, str] | None:
    """Why an attempt that ended well gave no valid measurement, or None where it did."""
    given = [m for m in measurements if m is not None]
    if not measurements or len(given) < len(measurements):
        missing = [str(rank) for rank, m in enumerate(measurements) if m is None]
        which = f"ranks {_few(missing)}" if missing else "all ranks"
        return Outcome.UNKNOWN, f"ended without error, but {which} gave no measurement"
    differing = mismatches(run, given)
    if differing:
        return Outcome.CONFIG_MISMATCH, "; ".join(differing)
    bad = [rank for rank, m in enumerate(given) if not all(math.isfinite(t) and t > 0 for t in m.step_times_s)]
    if bad:
        return Outcome.UNKNOWN, f"impossible step times from ranks {_few(map(str, bad))}"
    for name in ("losses", "grad_norms"):
        for rank, measurement in enumerate(given):
            at = _first_non_finite(getattr(measurement, name))
            if at is not None:
                return Outcome.NAN_LOSS, f"{name}[{at}] of rank {rank} is not finite"
    return None


def mismatches(run: Run, measurements: Sequence[Measurement]) -> list[str]:
    """Each difference between what was asked and what ran, with both values."""
    asked = requested(run)
    found: dict[str, None] = {}
    for rank, measurement in enumerate(measurements):
        for name, value in measurement.effective.items():
            if name in asked and value != asked[name]:
                found.setdefault(f"{name}: asked {asked[name]}, ran {value} (rank {rank})")
    counts = sorted({len(m.step_times_s) for m in measurements})
    if counts[0] < max(1, run.iterations):
        found.setdefault(f"iterations: asked {run.iterations}, timed {counts[0]}")
    elif len(counts) > 1:
        found.setdefault(f"iterations: ranks timed {counts[0]} to {counts[-1]}")
    by_name: dict[str, list[str]] = {}
    for text in found:
        by_name.setdefault(text.split(":")[0], []).append(text)
    return [texts[0] + (f" and {len(texts) - 1} more ranks" if len(texts) > 1 else "") for texts in by_name.values()]


def requested(run: Run) -> dict[str, Any]:
    """What a run asks for, under the names that ``Measurement.effective`` may state."""
    values = dataclasses.asdict(run.layout)
    if run.layout.pp == 1:
        del values["pp_schedule"]
    return values | {
        "gpus": run.gpus,
        "world_size": run.gpus,
        "nodes": run.nodes,
        "sequence_length": run.sequence_length,
        "global_batch_tokens": run.global_batch_tokens,
        "global_batch_sequences": run.global_batch_sequences,
        "dtype": run.dtype,
        "compile": run.compile,
    }


def metrics(run: Run, measurements: Sequence[Measurement], gpu: str | None) -> dict[str, Any]:
    """The metric columns of a valid measurement.

    An iteration lasts as long as its slowest rank; the rate is taken from the median iteration.
    """
    times = [max(step) for step in zip(*(m.step_times_s for m in measurements), strict=True)]
    median = statistics.median(times)
    rate = run.global_batch_tokens / median
    return {
        "tokens_per_second": rate,
        "tokens_per_second_per_gpu": rate / run.gpus,
        "step_time_median_s": median,
        "step_time_min_s": min(times),
        "step_time_max_s": max(times),
        "step_times_s": times,
        "rank_step_time_median_s": [statistics.median(m.step_times_s) for m in measurements],
        "losses": next((m.losses for m in measurements if m.losses), None),
        "grad_norms": next((m.grad_norms for m in measurements if m.grad_norms), None),
        **efficiency(run, rate / run.gpus, gpu, _counted_matmul_flops(measurements)),
        **memory(measurements),
    }


def efficiency(
    run: Run, tokens_per_second_per_gpu: float, gpu: str | None, counted_matmul: float | None = None
) -> dict[str, Any]:
    """TFLOPS, MFU and HFU by the project's own convention; null where the shape or the peak is not known.

    ``counted_matmul``: FLOPs of matrix products that one step executed, over all ranks, where they were counted.
    """
    shape = shape_of(run)
    if shape is None:
        return {}
    model = flops.model_flops_per_token(shape, run.sequence_length)
    executed = executed_flops_per_token(run, shape, counted_matmul)
    known = GPUS.get((gpu or "").lower())
    peak = known.peak_flops(run.dtype) if known else None
    return {
        "flops_per_token": float(model),
        "tflops_per_gpu": tokens_per_second_per_gpu * model / TERA,
        "mfu": flops.utilisation(tokens_per_second_per_gpu, model, peak),
        "hfu": flops.utilisation(tokens_per_second_per_gpu, executed, peak),
        "peak_tflops_per_gpu": None if peak is None else peak / TERA,
        "flops_convention": f"{flops.DEFAULT_CONVENTION.name}: {flops.DEFAULT_CONVENTION.source}",
    }


def executed_flops_per_token(run: Run, shape: shapes.ModelShape, counted_matmul: float | None) -> float:
    """By the count of what was executed where there is one, else by the formula of the kind of recomputation.

    The count knows what the formula cannot: torch's checkpoints stop before a layer's last product, and a schedule that
    splits the backward computes a layer twice. Attention is the formula's in both, so that MFU and HFU count it alike.
    """
    recompute = run.layout.recompute
    profile = profile_of(run.workload, run.params)
    if recompute == "selective" and profile is not None and profile.selective == "cheap":
        recompute = "none"  # it keeps every product's and the attention's output
    if counted_matmul is None:
        return float(flops.hardware_flops_per_token(shape, run.sequence_length, recompute))
    attention = flops.attention_forward_flops_per_token(shape, run.sequence_length, flops.DEFAULT_CONVENTION.attention)
    weights = 6 * flops.counted_parameters(shape, flops.DEFAULT_CONVENTION)
    return float(max(weights, counted_matmul / run.global_batch_tokens) + (3 + (recompute == "full")) * attention)


def _counted_matmul_flops(measurements: Sequence[Measurement]) -> float | None:
    value = next((m.extra.get("executed_matmul_flops_per_step") for m in measurements), None)
    return value if isinstance(value, (int, float)) and math.isfinite(value) else None


def parameters(run: Run) -> dict[str, Any]:
    """The model's parameters by its shape; null where the run states none."""
    shape = shape_of(run)
    if shape is None:
        return {}
    return {
        "parameters_total": int(shapes.total_parameters(shape)),
        "parameters_active": int(shapes.active_parameters(shape)),
    }


def shape_of(run: Run) -> shapes.ModelShape | None:
    """The run's shape, or None where the workload has no model (collectives) or states no shape."""
    return shapes.ModelShape(**run.shape) if run.shape else None  # type: ignore[arg-type]


def memory(measurements: Sequence[Measurement | None]) -> dict[str, Any]:
    """Memory and parameters of the ranks that told them: of use for failures as well."""
    allocated = [None if m is None else m.peak_allocated_bytes for m in measurements]
    reserved = [m.peak_reserved_bytes for m in measurements if m is not None]
    parameters = [None if m is None else m.parameters for m in measurements]
    kinds = sorted({m.memory_kind for m in measurements if m is not None and m.peak_allocated_bytes is not None})
    peak = _greatest(allocated)
    return {
        "peak_memory_bytes": peak,
        "peak_memory_reserved_bytes": _greatest(reserved),
        "rank_peak_memory_bytes": None if peak is None else allocated,
        "memory_kind": None if peak is None else f"{'; '.join(kinds)}, greatest over ranks",
        "rank_parameters": None if _greatest(parameters) is None else parameters,
    }


def oddities(measurements: Sequence[Measurement]) -> list[str]:
    """What ranks of one attempt must agree on and do not."""
    notes = []
    for name in sorted({key for m in measurements for key in m.versions}):
        values = sorted({m.versions[name] for m in measurements if name in m.versions})
        if len(values) > 1:
            notes.append(f"ranks run different versions of {name}: {', '.join(values)}")
    first = next((m.losses for m in measurements if m.losses), None)
    other = next((rank for rank, m in enumerate(measurements) if not _alike(first, m.losses)), None)
    if other is not None:
        notes.append(f"rank {other} states other losses than the ranks before it: they do not train one model")
    return notes


def of_another_torch(measurements: Sequence[Measurement], planned: str | None) -> list[str]:
    """Whether the ranks run another torch than the one whose rules made the plan. ``2.13`` stands for any 2.13.x."""
    from packaging.version import InvalidVersion, Version

    runs = next((m.versions["torch"] for m in measurements if "torch" in m.versions), None)
    if planned is None or runs is None:
        return []
    try:
        wanted, found = Version(planned).release, Version(runs).release
    except InvalidVersion:
        return []
    if found[: len(wanted)] == wanted:
        return []
    return [
        f"the site says torch {planned}, the ranks run {runs}: candidates were rejected by the rules of another torch; "
        f"plan again with torch_version: '{'.'.join(map(str, found))}'"
    ]


def own_step_times_s(measurements: Sequence[Measurement]) -> list[float]:
    """Per rank, the median of what its steps took without waiting for others; with it where that is not told."""
    medians = [(m.extra.get("own_time_median_s"), m.step_times_s) for m in measurements]
    return [statistics.median(steps) if own is None else float(own) for own, steps in medians]


def slow_rank(medians: Sequence[float], step_s: float) -> int | None:
    """The rank whose own steps clearly take longest, or None where they are about equal.

    ``step_s``: the median step of all. Where collectives overlap computation, own times may come near nothing or below:
    then it takes a twentieth of a step to be late.
    """
    if len(medians) < 2:
        return None
    slowest, usual = max(range(len(medians)), key=medians.__getitem__), statistics.median(medians)
    late = medians[slowest] - usual
    return slowest if late > (STRAGGLER - 1) * max(usual, step_s / 2) else None


def over_ranks(values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Many ranks' numbers in one: equal values once, numbers as their spread, else the first rank's."""
    return {key: _spread([v[key] for v in values if key in v]) for key in dict.fromkeys(k for v in values for k in v)}


def _spread(values: list[Any]) -> Any:
    if all(value == values[0] for value in values):
        return values[0]
    if not all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values):
        return values[0]
    most = max(range(len(values)), key=values.__getitem__)
    return {"min": min(values), "median": statistics.median(values), "max": values[most], "max_rank": most}


def _alike(first: Sequence[float] | None, other: Sequence[float] | None) -> bool:
    if first is None or other is None:
        return True
    pairs = zip(first, other, strict=False)
    return len(first) == len(other) and all(math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-6) for a, b in pairs)


def _first_non_finite(values: Sequence[float | None] | None) -> int | None:
    return next((i for i, v in enumerate(values or ()) if v is None or not math.isfinite(v)), None)


def _greatest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _few(names: Iterable[str], most: int = 8) -> str:
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
