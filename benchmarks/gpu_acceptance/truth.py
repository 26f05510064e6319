"""The truth table's layouts of one rank, on the device, against one plain process on the same device."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from benchmarks.gpu_acceptance.parts import Check, Result, Setting

FP32, BF16 = (1e-5, 1e-5), (1e-3, 5e-3)
"""largest relative distance of loss and norm. On a CPU it is 1e-6 in fp32; kernels of a GPU add in another order"""


def run(setting: Setting) -> Result:
    """Losses and gradient norms of three optimizer steps each."""
    from tests.support.ranks.harness import ForkServer

    result = Result()
    fork_server = ForkServer("transformer")
    began = time.monotonic()
    try:
        for dtype, bounds in (("fp32", FP32), ("bf16", BF16)):
            for case in _cases(tiny=setting.tiny):
                if time.monotonic() - began > setting.seconds - 60:
                    result.checks.append(Check("all cases ran in time", False, f"stopped before {case.name} {dtype}"))
                    return result
                _compare(fork_server, case, dtype, bounds, result, device="cpu" if setting.gpu == "cpu" else "cuda")
    finally:
        fork_server.close()
    return result


def _cases(*, tiny: bool) -> list[Any]:
    from tests.support.transformer.cases import COMPILED, TABLE, case

    of_one = [c for c in TABLE if c.layout.gpus == 1]
    kernels = [case("dp=1", params={"attention": name}) for name in ("flash", "efficient", "cudnn")]
    further = [case(f"dp=1 recompute={kind}") for kind in ("selective", "full")]
    further += [case("dp=1", params={"weights_dtype": "bf16"}), case("dp=1", "tied")]
    if tiny:
        return of_one[:1] + further[:1]
    return [*of_one, *further, *(c for c in COMPILED if c.layout.gpus == 1), *kernels]


def _compare(fork_server: Any, case: Any, dtype: str, bounds: tuple[float, float], result: Result, device: str) -> None:
    from tests.support.transformer.reference import truth

    run = replace(case, params={**case.params, "steps_per_sync": 1}).run(dtype=dtype)  # as many steps as on a CPU
    if dtype == "fp32" and run.params.get("attention") in ("flash", "cudnn"):
        return  # these kernels take half precision only
    row: dict[str, Any] = {"case": case.name, "dtype": dtype}
    rank = fork_server.attempt(run)[0]
    if rank.exit or rank.failure:
        why = (rank.failure or {}).get("message", rank.stderr)[-300:]
        result.rows.append(row | {"error": why})
        result.checks.append(Check(f"{case.name} {dtype} runs", False, why))
        return
    losses, norms = truth(run, device=device)
    row["loss"] = _furthest(rank.measurement["losses"], losses)
    row["norm"] = _furthest(rank.measurement["grad_norms"], norms)
    result.rows.append(row)
    loose = 2.0 if run.params.get("weights_dtype") == "bf16" else 0.0  # trains in bf16: the reference has fp32 weights
    holds = row["loss"] < max(bounds[0], 1e-2 * loose) and row["norm"] < max(bounds[1], 1e-2 * loose)
    detail = f"loss {row['loss']:.1e}, norm {row['norm']:.1e}"
    result.checks.append(Check(f"{case.name} {dtype} equals one process", holds, detail))


def _furthest(measured: list[float], true: list[float]) -> float:
    return max(abs(a / b - 1) for a, b in zip(measured, true, strict=True))
