"""Metrics of a record from the measurements of an attempt's ranks. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace

from sweep.contract import FORMATS, Measurement, Run
from sweep.physics import flops, shapes
from sweep.physics.columns import recomputed_share
from sweep.physics.flops import DEFAULT_CONVENTION, FlopsConvention
from sweep.physics.hardware import GPUS
from sweep.physics.pipeline import chunks_per_rank
from sweep.physics.profiles import profile_of
from sweep.records.schema import Efficiency, JobCosts, MemoryColumns, Metrics, Rates, Training

STRAGGLER = 1.10
"""A rank is slow where its median step takes this many times the median of all ranks' medians."""

TERA = 1e12
COSTS = tuple(field.name for field in fields(JobCosts))


def metrics(run: Run, measurements: Sequence[Measurement | None], gpu: str | None, *, valid: bool) -> Metrics:
    """``valid``: every rank measured what was requested. Else only memory and sizes, useful for failures too."""
    given = [m for m in measurements if m is not None]
    about = vars(memory(measurements)) | vars(training(measurements, valid=valid))
    if not valid:
        return Metrics(**about)
    speed = rates(run, given)
    counted = next((m.extra.get("executed_matmul_flops_per_step") for m in given), None)
    known = counted if isinstance(counted, (int, float)) and math.isfinite(counted) else None
    used = efficiency(run, speed.tokens_per_second_per_gpu, gpu, counted_matmul=known)
    stated = {name: given[0].extra.get(name) for name in COSTS}
    about |= {name: v for name, v in stated.items() if isinstance(v, int | float) and math.isfinite(v)}
    return Metrics(**about, **vars(speed), **vars(replace(used, energy_j_per_token=energy_j_per_token(given))))


def energy_j_per_token(measurements: Sequence[Measurement]) -> float | None:
    """Of all GPUs together, in J; null unless each counted its own.

    Each rank states joules per token of its own share of the batch, and the shares are equal.
    """
    values = [m.extra.get("energy_j_per_token") for m in measurements]
    known = [value for value in values if isinstance(value, int | float) and 0 < value < math.inf]
    return statistics.fmean(known) if known and len(known) == len(values) else None


def rates(run: Run, measurements: Sequence[Measurement]) -> Rates:
    """Rates of the median iteration; an iteration lasts as long as its slowest rank."""
    times = [max(step) for step in zip(*(m.step_times_s for m in measurements), strict=True)]
    median = statistics.median(times)
    rate = run.global_batch_tokens / median
    return Rates(
        tokens_per_second=rate,
        tokens_per_second_per_gpu=rate / run.gpus,
        step_time_median_s=median,
        step_time_min_s=min(times),
        step_time_max_s=max(times),
        step_times_s=times,
        warmup_times_s=list(measurements[0].warmup_times_s) or None,
        rank_step_time_median_s=[statistics.median(m.step_times_s) for m in measurements],
    )


def efficiency(
    run: Run,
    tokens_per_second_per_gpu: float | None,
    gpu: str | None,
    *,
    convention: FlopsConvention = DEFAULT_CONVENTION,
    counted_matmul: float | None = None,
    stated: int | None = None,
) -> Efficiency:
    """TFLOPS, MFU and HFU by a convention; null where the rate, the shape or the peak FLOP/s is unknown.

    ``counted_matmul``: FLOPs of matrix products executed in one step, over all ranks, where counted. ``stated``: the
    size that an imported source states for its model.
    """
    shape, rate = shape_of(run), tokens_per_second_per_gpu
    if shape is None:
        return Efficiency()
    frozen = has_frozen_weights(run)
    model = flops.model_flops_per_token(shape, run.sequence_length, convention, frozen_weights=frozen, stated=stated)
    executed = executed_flops_per_token(run, shape, convention, counted_matmul, stated)
    other = run.layout.recompute == "selective" and "core_attn" not in (run.layout.recompute_modules or "core_attn")
    known = GPUS.get((gpu or "").lower())
    peak = known.peak_flops(run.dtype) if known else None
    narrow = FORMATS.get(run.dtype, run.dtype) in ("fp8", "fp4")
    half = known.peak_flops("bf16") if known and narrow else None
    return Efficiency(
        flops_per_token=float(model),
        tflops_per_gpu=None if rate is None else rate * model / TERA,
        mfu=flops.utilisation(rate, model, peak),
        mfu_of_bf16=flops.utilisation(rate, model, half),
        hfu=None if other else flops.utilisation(rate, executed, peak),  # what other modules recompute is not counted
        peak_tflops_per_gpu=None if peak is None else peak / TERA,
        flops_convention=f"{convention.name}: {convention.source}",
    )


def executed_flops_per_token(
    run: Run,
    shape: shapes.ModelShape,
    convention: FlopsConvention,
    counted_matmul: float | None,
    stated: int | None = None,
) -> float:
    """From the counted FLOPs where available, else by the formula of the kind of recomputation.

    The count is more exact: torch's checkpoints stop before a layer's last product, and a schedule that
    splits the backward computes a layer twice. Attention is the formula's in both, so that MFU and HFU agree.
    """
    recompute = run.layout.recompute
    profile = profile_of(run.workload, run.params)
    if recompute == "selective" and profile is not None and profile.selective == "cheap":
        recompute = "none"  # it stores every product's and the attention's output
    columns = {**vars(run.layout), "num_layers": shape.num_layers}
    share = float(recomputed_share(columns, chunks_per_rank(columns)))
    if counted_matmul is None:
        frozen = has_frozen_weights(run)
        return float(
            flops.hardware_flops_per_token(
                shape, run.sequence_length, recompute, convention, frozen_weights=frozen, stated=stated, share=share
            )
        )
    attention = flops.attention_forward_flops_per_token(shape, run.sequence_length, convention.attention)
    weights = (4 if has_frozen_weights(run) else 6) * flops.counted_parameters(shape, convention)
    return float(
        max(weights, counted_matmul / run.global_batch_tokens) + (3 + share * (recompute == "full")) * attention
    )


def has_frozen_weights(run: Run) -> bool:
    """Whether only adapters are trained (LoRA), as the run's parameters state."""
    return run.params.get("frozen_weights") is True


def shape_of(run: Run) -> shapes.ModelShape | None:
    """The run's shape, or None where the workload has no model (collectives) or states no shape."""
    return shapes.ModelShape(**run.shape) if run.shape else None  # type: ignore[arg-type]


def memory(measurements: Sequence[Measurement | None]) -> MemoryColumns:
    """Memory columns, over the ranks that reported it."""
    allocated = [None if m is None else m.peak_allocated_bytes for m in measurements]
    reserved = [m.peak_reserved_bytes for m in measurements if m is not None]
    kinds = sorted({m.memory_kind for m in measurements if m is not None and m.peak_allocated_bytes is not None})
    peak = _greatest(allocated)
    return MemoryColumns(
        peak_memory_bytes=peak,
        peak_memory_reserved_bytes=_greatest(reserved),
        rank_peak_memory_bytes=None if peak is None else allocated,
        memory_kind=None if peak is None else f"{'; '.join(kinds)}, greatest over ranks",
    )


def training(measurements: Sequence[Measurement | None], *, valid: bool) -> Training:
    """Training columns. Losses and gradient norms are from the first rank that has them: maybe only the last stage."""
    given = [m for m in measurements if m is not None]
    sizes = [None if m is None else m.parameters for m in measurements]
    return Training(
        losses=next((m.losses for m in given if m.losses), None) if valid else None,
        grad_norms=next((m.grad_norms for m in given if m.grad_norms), None) if valid else None,
        rank_parameters=None if _greatest(sizes) is None else sizes,
        simulated=any(m.simulated for m in given),
    )


def own_step_times_s(measurements: Sequence[Measurement]) -> list[float]:
    """Per rank, the median of its step times without waiting for others; with waiting where that is not reported."""
    medians = [(m.extra.get("own_time_median_s"), m.step_times_s) for m in measurements]
    return [statistics.median(steps) if own is None else float(own) for own, steps in medians]


def slow_rank(medians: Sequence[float], step_s: float) -> int | None:
    """The rank whose own steps clearly take longest, or None where they are about equal.

    ``step_s``: the median step of all. Where collectives overlap computation, own times may be near zero or negative:
    then a rank is slow from a twentieth of a step.
    """
    if not medians:
        return None
    slowest, usual = max(range(len(medians)), key=medians.__getitem__), statistics.median(medians)
    late = medians[slowest] - usual
    return slowest if late > (STRAGGLER - 1) * max(usual, step_s / 2) else None


def _greatest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
