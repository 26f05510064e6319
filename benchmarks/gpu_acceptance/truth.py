"""The truth table's layouts of one rank, on the device, against one plain process on the same device."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

from benchmarks.gpu_acceptance.parts import Check, Result, Setting

FP32, BF16 = (1e-5, 1e-5), (1e-3, 5e-3)
"""largest relative distance of loss and norm. On a CPU it is 1e-6 in fp32; kernels of a GPU add in another order"""
KEPT = "truth.jsonl"
"""cases that were compared, one a line"""


def run(setting: Setting) -> Result:
    """Losses and gradient norms of three optimizer steps each."""
    from tests.support.ranks.harness import ForkServer

    result, known = Result(), _held(setting)
    fork_server = ForkServer("transformer")
    began = time.monotonic()
    try:
        for dtype, bounds in (("fp32", FP32), ("bf16", BF16)):
            for case in _cases(tiny=setting.tiny):
                if dtype == "fp32" and case.params.get("attention") in ("flash", "cudnn"):
                    continue  # these kernels take half precision only
                if (case.name, dtype) not in known and time.monotonic() - began > setting.seconds - 60:
                    result.checks.append(Check("all cases ran in time", False, f"stopped before {case.name} {dtype}"))
                    return result
                row = known.get((case.name, dtype)) or _compare(fork_server, case, dtype, setting)
                result.rows.append(row)
                result.checks.append(_check(row, bounds, loose=case.params.get("weights_dtype") == "bf16"))
    finally:
        fork_server.close()
    return result


def _held(setting: Setting) -> dict[tuple[str, str], dict[str, Any]]:
    """(case, dtype) -> its row, of what an earlier call compared, which the time cut."""
    path = setting.directory / KEPT
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {(row["case"], row["dtype"]): row for row in rows}


def _cases(*, tiny: bool) -> list[Any]:
    from tests.support.transformer.cases import COMPILED, TABLE, case

    of_one = [c for c in TABLE if c.layout.gpus == 1]
    kernels = [case("dp=1", params={"attention": name}) for name in ("flash", "efficient", "cudnn")]
    further = [case(f"dp=1 recompute={kind}") for kind in ("selective", "full")]
    further += [case("dp=1", params={"weights_dtype": "bf16"}), case("dp=1", "tied")]
    if tiny:
        return of_one[:1] + further[:1]
    return [*of_one, *further, *(c for c in COMPILED if c.layout.gpus == 1), *kernels]


def _compare(fork_server: Any, case: Any, dtype: str, setting: Setting) -> dict[str, Any]:
    from tests.support.transformer.reference import truth

    run = replace(case, params={**case.params, "steps_per_sync": 1}).run(dtype=dtype)  # as many steps as on a CPU
    row: dict[str, Any] = {"case": case.name, "dtype": dtype}
    rank = fork_server.attempt(run)[0]
    if rank.exit or rank.failure:
        return row | {"error": (rank.failure or {}).get("message", rank.stderr)[-300:]}
    losses, norms = truth(run, device="cpu" if setting.gpu == "cpu" else "cuda")
    row["loss"] = _furthest(rank.measurement["losses"], losses)
    row["norm"] = _furthest(rank.measurement["grad_norms"], norms)
    with (setting.directory / KEPT).open("a") as kept:
        print(json.dumps(row), file=kept)
    return row


def _check(row: dict[str, Any], bounds: tuple[float, float], *, loose: bool) -> Check:
    """``loose``: it trains in bf16, where the reference has fp32 weights."""
    name = f"{row['case']} {row['dtype']}"
    if "error" in row:
        return Check(f"{name} runs", False, row["error"])
    loss, norm = (max(bound, 2e-2 * loose) for bound in bounds)
    detail = f"loss {row['loss']:.1e}, norm {row['norm']:.1e}"
    return Check(f"{name} equals one process", row["loss"] < loss and row["norm"] < norm, detail)


def _furthest(measured: list[float], true: list[float]) -> float:
    return max(abs(a / b - 1) for a, b in zip(measured, true, strict=True))
