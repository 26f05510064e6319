"""Validity checks of measurements, and oddities. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from packaging.version import InvalidVersion, Version

from sweep.contract import FURTHER, Measurement, Run, Scalar, SlowBound
from sweep.errors import first_names
from sweep.outcomes import Outcome
from sweep.physics.hardware import best_matmul_share, gpu_kind
from sweep.physics.job import saves
from sweep.physics.shapes import ModelShape, total_parameters
from sweep.planning.effects import GENERAL
from sweep.records.schema import Metrics


def refusal(
    run: Run, measurements: Sequence[Measurement | None], gpu: str | None = None, bound: SlowBound | None = None
) -> tuple[Outcome, str] | None:
    """Why a successful attempt has no valid measurement, or None where it has one. ``gpu``: the site's kind; ``bound``:
    by which it could end early.
    """
    given = [m for m in measurements if m is not None]
    if not measurements or len(given) < len(measurements):
        missing = [str(rank) for rank, m in enumerate(measurements) if m is None]
        which = f"ranks {first_names(missing, 8)}" if missing else "all ranks"
        return Outcome.UNKNOWN, f"ended without error, but {which} gave no measurement"
    differing = mismatches(run, given, bound) + _other_gpu(given, gpu)
    if differing:
        return Outcome.CONFIG_MISMATCH, "; ".join(differing)
    bad = [str(rank) for rank, m in enumerate(given) if not all(math.isfinite(t) and t > 0 for t in m.step_times_s)]
    if bad:
        return Outcome.UNKNOWN, f"impossible step times from ranks {first_names(bad, 8)}"
    return _not_finite(given)


def _not_finite(given: Sequence[Measurement]) -> tuple[Outcome, str] | None:
    for name in ("losses", "grad_norms"):
        for rank, measurement in enumerate(given):
            values = getattr(measurement, name) or ()
            at = next((i for i, value in enumerate(values) if value is None or not math.isfinite(value)), None)
            if at is not None:
                return Outcome.NAN_LOSS, f"{name}[{at}] of rank {rank} is not finite"
    return None


def stopped_after(measurements: Sequence[Measurement], bound: SlowBound | None) -> int | None:
    """The number of iterations that were timed where the attempt ended early, as it could; None where it did not."""
    after = {m.stopped for m in measurements}
    return after.pop() if bound is not None and len(after) == 1 else None


def mismatches(run: Run, measurements: Sequence[Measurement], bound: SlowBound | None = None) -> list[str]:
    """Each difference between what was requested and what ran, with both values."""
    asked = requested(run) | ({"checkpoint": run.params["checkpoint"]} if saves(run.params) else {})
    differ: dict[str, list[str]] = {}
    for rank, measurement in enumerate(measurements):
        for name, value in measurement.effective.items():
            if name in asked and value != asked[name]:
                differ.setdefault(name, []).append(f"{name}: requested {asked[name]}, ran {value} (rank {rank})")
    found = [one + (f" and {len(more)} more ranks" if more else "") for one, *more in differ.values()]
    counts = sorted({len(m.step_times_s) for m in measurements})
    wanted = 1 if stopped_after(measurements, bound) is not None else run.iterations
    if counts[0] < wanted:
        found.append(f"iterations: requested {run.iterations}, timed {counts[0]}")
    elif len(counts) > 1:
        found.append(f"iterations: ranks timed {counts[0]} to {counts[-1]}")
    return found


_OWN = ("etp", "virtual_stages", "pipeline_layout", "recompute_modules", "recompute_layers")
"""fields whose default leaves the choice to the trainer, which may state it"""


def requested(run: Run) -> dict[str, Scalar]:
    """What a run requests, under the names that ``Measurement.effective`` may have."""
    columns = {"num_experts": 0, **run.shape, **vars(run.layout), "dtype": run.dtype}
    values: dict[str, Scalar] = {
        name: value
        for name, value in vars(run.layout).items()
        if (name not in GENERAL or GENERAL[name](columns)) and not (name in _OWN and value == FURTHER[name])
    }
    if run.shape:
        values["parameters_total"] = int(total_parameters(ModelShape(**run.shape)))  # type: ignore[arg-type]
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


def _other_gpu(measurements: Sequence[Measurement], stated: str | None) -> list[str]:
    """The first rank whose device is known to be of another kind than the site states; the peak would be wrong."""
    if stated in (None, "cpu"):
        return []
    first = {measurement.device or "": rank for rank, measurement in reversed([*enumerate(measurements)])}
    for device, rank in sorted(first.items(), key=lambda item: item[1]):
        if gpu_kind([device]) not in (None, stated):
            return [f"gpu: the site states {stated}, rank {rank} measured on {device}"]
    return []


def oddities(measurements: Sequence[Measurement]) -> list[str]:
    """Disagreements between ranks of one attempt."""
    notes = []
    for name in sorted({key for m in measurements for key in m.versions}):
        values = sorted({m.versions[name] for m in measurements if name in m.versions})
        if len(values) > 1:
            notes.append(f"ranks run different versions of {name}: {', '.join(values)}")
    first = next((m.losses for m in measurements if m.losses), None)
    other = next((rank for rank, m in enumerate(measurements) if not _similar(first, m.losses)), None)
    if other is not None:
        notes.append(f"rank {other} reports other losses than the ranks before it: they do not train one model")
    return notes


def of_another_torch(measurements: Sequence[Measurement], planned: str | None) -> list[str]:
    """Notes ranks that run another torch than the plan was made for. ``2.13`` means any 2.13.x."""
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
        f"the site states torch {planned}, the ranks run {runs}: candidates were rejected by another torch's rules; "
        f"plan again with torch_version: '{'.'.join(map(str, found))}'"
    ]


def implausible(metrics: Metrics, gpu: str | None, dtype: str | None) -> list[str]:
    """Implausible values of a measurement, as text. Empty for a plausible one."""
    notes = []
    best = best_matmul_share(gpu, dtype)
    shares = {name: getattr(metrics, name) for name in ("mfu", "hfu", "reported_mfu", "reported_hfu")}
    for name, value in shares.items():
        if value is not None and value > 1:
            notes.append(f"{name} is {value:.1%} of the peak FLOP/s: no hardware exceeds it")
        elif value is not None and value > best:
            notes.append(f"{name} is {value:.1%}: the best matrix product on {gpu} reaches {best:.0%} at most")
    if metrics.mfu is not None and metrics.hfu is not None and metrics.hfu < metrics.mfu * (1 - 1e-9):
        notes.append(f"hfu {metrics.hfu:.1%} is less than mfu {metrics.mfu:.1%}: executed FLOPs include the model's")
    for name in ("tokens_per_second", "tokens_per_second_per_gpu", "step_time_median_s", "tflops_per_gpu", "mfu"):
        value = getattr(metrics, name)
        if value is not None and value <= 0:
            notes.append(f"{name} is {value}")
    return notes


def _similar(first: Sequence[float] | None, other: Sequence[float] | None) -> bool:
    if first is None or other is None:
        return True
    pairs = zip(first, other, strict=False)
    return len(first) == len(other) and all(math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-6) for a, b in pairs)


NOTE = "losses differ"
"""How every note of this module begins"""

COMPARED = 5
"""Iterations compared: rounding grows with the steps, a wrong gradient shows in the second"""

TOLERANCE: Mapping[str, float] = {"fp32": 1e-4}
"""dtype -> relative difference that rounding may cause"""
DEFAULT_TOLERANCE = 1e-2
OTHER_START = 5e-2
"""the same for trainers that give each layout its own weights: only gross errors show"""


def tolerance_of(dtype: str, *, same_start: bool = True) -> float:
    """Relative tolerance between losses of a model. ``same_start``: see ``sweep.contract.Workload``."""
    return TOLERANCE.get(dtype, DEFAULT_TOLERANCE) if same_start else OTHER_START


def disagreements(
    groups: Sequence[Hashable], losses: Sequence[Sequence[float] | None], tolerances: Sequence[float]
) -> dict[int, str]:
    """Index of a record -> what is odd about its losses.

    ``groups``: what makes two records measurements of the same training (model, batch, dtype, parameters).
    ``losses``: per record, the loss of each iteration; None where it has none. ``tolerances``: per record.
    Of three or more, those off the median are reported; of two that differ, both are.
    """
    members: dict[Hashable, list[int]] = defaultdict(list)
    for index, (group, values) in enumerate(zip(groups, losses, strict=True)):
        if values is not None and len(values):
            members[group].append(index)
    found: dict[int, str] = {}
    for indices in members.values():
        if len(indices) > 1:
            widest = max(tolerances[index] for index in indices)
            found |= _of_group({index: losses[index] or () for index in indices}, widest)
    return found


def _of_group(losses: Mapping[int, Sequence[float]], tolerance: float) -> dict[int, str]:
    length = min(COMPARED, *(len(values) for values in losses.values()))
    table = np.array([list(values)[:length] for values in losses.values()], dtype=float)
    usual = np.nanmedian(table, axis=0)
    # NaN agrees with nothing.
    distance = np.nan_to_num(np.abs(table - usual) / np.maximum(np.abs(usual), 1e-12), nan=np.inf).max(axis=1)
    if len(losses) == 2:
        distance = distance * 2  # each is half of their difference away from the median of both
    return {
        index: f"{NOTE} from those of the other {len(losses) - 1} layouts of this model by up to {far:.1e} (relative)"
        for index, far in zip(losses, distance, strict=True)
        if far > tolerance
    }
