"""The metrics that figures can rank, colour and print: labels, units, and which end is better."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweep.errors import Mistake, SweepError, nearest
from sweep.physics.hardware import GIB
from sweep.physics.job import FAILURES_PER_GPU_DAY, SECONDS_PER_DAY, Job

if TYPE_CHECKING:
    import pandas as pd


JOB = "job_tokens_per_gpu_day"
START = ("imports_s", "start_s", "first_iteration_s")
"""columns of a start's phases"""
JOB_COLUMNS = (
    *("checkpoint_stall_s", "checkpoint_slowdown", "checkpoint_durable_s", "checkpoint_restore_s"),
    *("failures_per_gpu_day", "restart_time", "graphs_compiled", *START),
)
LEAST_GIB = 0.01
"""10 MiB: a thousandth of the smallest GPU; less is no difference between layouts"""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One number of a record, or one derived from it, as it is displayed."""

    name: str
    label: str
    """with its unit, for axes and colour bars"""
    source: str = ""
    """the record column that it is computed from, where that has another name"""
    suffix: str = ""
    """unit as printed after a value in a cell"""
    factor: float = 1.0
    """printed value = factor * value"""
    better: int = 1
    """-1: where a lower value is better"""
    absolute: bool = False
    """comparable between models, so that one colour scale suits them all"""
    time_like: int = 1
    """1: goes with the rate (as tokens/s does); -1: goes with the step time; 0: has no spread over iterations"""
    needs: str = ""
    """a key of the site file without which it has no value"""

    @property
    def column(self) -> str:
        """The record column that it is computed from."""
        return self.source or self.name

    def of(self, records: pd.DataFrame) -> pd.Series:
        """The metric of each record, in the unit of its column or as derived.

        Raises SweepError where the site file of none states what it needs.
        """
        if self.needs and len(records) and records[self.needs].isna().all():
            remedy = f"add `{self.needs}: NUMBER` to the sweep's site.yaml"
            raise SweepError(Mistake(f"{self.name} needs the site's {self.needs}", path="--metric", remedy=remedy))
        if self.name == JOB:
            return records["tokens_per_second_per_gpu"].astype(float) * SECONDS_PER_DAY * job_of(records).shares[0]
        values = records[self.column].astype(float)
        if self.name == "gpu_hours_per_billion_tokens":
            return 1e9 / values / 3600
        if self.name == "dollars_per_million_tokens":
            return 1e6 / values / 3600 * records["dollars_per_gpu_hour"].astype(float)
        if self.name == "co2_g_per_million_tokens":
            return 1e6 * values / JOULES_PER_KWH * records["co2_g_per_kwh"].astype(float)
        return values

    def text(self, value: float) -> str:
        """A value as it is printed in a cell, unit included."""
        return number(value * self.factor) + self.suffix

    def number(self, value: float | None) -> str:
        """A value as it is printed in a table whose head has the unit; a dash where there is none."""
        return "–" if value is None else number(value * self.factor)


METRICS: dict[str, Metric] = {
    m.name: m
    for m in (
        Metric(name="tokens_per_second_per_gpu", label="tokens/s/GPU", suffix=" tok/s/GPU"),
        Metric(name="tokens_per_second", label="tokens/s", suffix=" tok/s"),
        Metric(name="mfu", label="MFU (%)", suffix="%", factor=100, absolute=True),
        Metric(name="hfu", label="HFU (%)", suffix="%", factor=100, absolute=True),
        Metric(name="reported_mfu", label="MFU as reported by the source (%)", suffix="%", factor=100, absolute=True),
        Metric(name="tflops_per_gpu", label="TFLOP/s/GPU", suffix=" TF", absolute=True),
        Metric(name="step_time_median_s", label="step time (s)", suffix=" s", better=-1, time_like=-1),
        Metric(
            name="peak_memory_bytes",
            label="peak memory per GPU (GiB)",
            suffix=" GiB",
            factor=1 / GIB,
            better=-1,
            absolute=True,
            time_like=0,
        ),
        Metric(
            name="gpu_hours_per_billion_tokens",
            label="GPU-hours per 1e9 tokens",
            source="tokens_per_second_per_gpu",
            suffix=" GPUh",
            better=-1,
            time_like=-1,
        ),
        Metric(
            name="dollars_per_million_tokens",
            label="$ per 1e6 tokens",
            source="tokens_per_second_per_gpu",
            suffix=" $/Mtok",
            better=-1,
            time_like=-1,
            needs="dollars_per_gpu_hour",
        ),
        Metric(
            name="energy_j_per_token",
            label="energy of the GPUs (J/token)",
            suffix=" J/tok",
            better=-1,
            time_like=0,
        ),
        Metric(
            name="co2_g_per_million_tokens",
            label="CO2 of the GPUs (g per 1e6 tokens)",
            source="energy_j_per_token",
            suffix=" g/Mtok",
            better=-1,
            time_like=0,
            needs="co2_g_per_kwh",
        ),
        Metric(
            name=JOB,
            label="tokens/GPU-day of a job with failures",
            source="checkpoint_stall_s",
            suffix=" tok/GPU-day",
        ),
    )
}
"""name -> metric"""

DEFAULT_METRIC = "tokens_per_second_per_gpu"

JOULES_PER_KWH = 3.6e6


def metric_named(name: str) -> Metric:
    """The metric. Raises SweepError with the valid names."""
    if name in METRICS:
        return METRICS[name]
    raise SweepError(Mistake(f"unknown metric {name!r}", path="--metric", remedy=nearest(name, METRICS)))


def job_of(records: pd.DataFrame) -> Job:
    """The job of each record; null where no checkpoint of it was measured. What a start took is part of a restart."""
    of = records[[*JOB_COLUMNS, "step_time_median_s", "gpus"]].astype(float)
    return Job(
        step_s=of["step_time_median_s"],
        gpus=of["gpus"],
        stall_s=of["checkpoint_stall_s"],
        slowdown=of["checkpoint_slowdown"],
        durable_s=of["checkpoint_durable_s"],
        restart_s=of[[*START, "restart_time", "checkpoint_restore_s"]].sum(axis=1),
        failures_per_gpu_day=of["failures_per_gpu_day"].fillna(FAILURES_PER_GPU_DAY),
    )


def number(value: float) -> str:
    """Three or four significant digits, with thousands and millions shortened: 44.3, 38.9k, 1.25M, 0.042."""
    if not math.isfinite(value):
        return "–"
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return _digits(value / (1e3 if unit == "k" else limit)) + unit
    return f"{value:,.0f}" if abs(value) >= 1000 else _digits(value)


def short(value: float) -> str:
    """A round value without further digits: 40, 2.5, 7,500, 12.5k."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):g}{unit}"
    return f"{value:,.10g}"


def _digits(value: float) -> str:
    if value == 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(decimals, 6)}f}"


def memory_text(peak_bytes: float) -> str:
    """GPU memory as text, in one unit everywhere, rounded to what a reader compares: 41.8 GiB, 0.34 GiB, <0.01 GiB."""
    gib = peak_bytes / GIB
    if 0 < gib < LEAST_GIB / 2:
        return f"<{LEAST_GIB} GiB"
    return f"{gib:.2f} GiB" if 0 < gib < 1 else f"{_digits(gib)} GiB"
