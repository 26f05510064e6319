"""The entry point: every rank multiplies independently, so that a slow device stands out among its peers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from bench_workloads import hardware, process
from bench_workloads.matmul import Product, Settings, products
from bench_workloads.timing import DTYPES, measured_rounds, seconds_per_call, times_of
from sweep.contract import Measurement, Phase

if TYPE_CHECKING:
    from sweep.contract import Progress, RankRun


def main(run: RankRun, progress: Progress) -> None:
    """Measure and report. Called in a separate process per rank; the ranks do not communicate."""
    settings = Settings.of(run)
    progress.heartbeat(Phase.START)
    device = process.pick_device(run.place)
    bound = hardware.bind_to_near_cores(device, run.place)
    process.set_threads(run.place, 0, own_cores=bound is not None and device.type == "cpu")
    asked = products(run, settings)
    times, lengths = measured_rounds(
        run,
        progress,
        lambda: [_seconds(product, DTYPES[run.dtype], device, settings.repeats) for product in asked],
    )
    progress.measured(
        Measurement(
            step_times_s=lengths[run.warmup_iterations :],
            warmup_times_s=lengths[: run.warmup_iterations],
            device=hardware.name(device),
            versions=hardware.versions(device),
            effective={"dtype": run.dtype, "tp": run.layout.tp},
            extra={**_results(asked, times), **hardware.state(device)},
        )
    )
    progress.heartbeat(Phase.FINISH)


def _seconds(product: Product, dtype: torch.dtype, device: torch.device, repeats: int) -> float:
    left = torch.randn(product.m, product.k, device=device, dtype=dtype)
    right = torch.randn(product.k, product.n, device=device, dtype=dtype)
    out = torch.empty(product.m, product.n, device=device, dtype=dtype)
    return seconds_per_call(lambda: torch.mm(left, right, out=out), device, repeats)


def _results(asked: list[Product], times: list[tuple[float, ...]]) -> dict[str, Any]:
    rows = [_row(product, sampled) for product, sampled in zip(asked, times, strict=True)]
    widths = [row for row in rows if row["product"] == "swiglu_width"]
    return {
        "matmul": rows,
        "best_matmul_tflops": max(row["tflops"] for row in rows),
        "best_swiglu_width": max(widths, key=lambda row: float(row["tflops"]))["n"] if widths else None,
    }


def _row(product: Product, sampled: tuple[float, ...]) -> dict[str, Any]:
    times = times_of(sampled)
    return {
        "product": product.name,
        "m": product.m,
        "k": product.k,
        "n": product.n,
        **times,
        "tflops": product.flops / times["time_median_s"] / 1e12,
    }
