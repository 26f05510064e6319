"""The input pipeline: synthetic tokens against a memory-mapped file, read by the rank itself and by workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu_acceptance.layouts import grid_of
from benchmarks.gpu_acceptance.parts import Check, Result, Setting
from benchmarks.gpu_acceptance.sweeps import measure, row_of

TOKENS = 32 << 20
"""more than a run reads: 64 MiB of uint16"""
COST = 0.02
"""of a step: more than the noise between repeats is a cost"""


def run(setting: Setting) -> Result:
    """Three runs of one layout."""
    path = _file(setting.directory / "tokens.bin", 1 << 20 if setting.tiny else TOKENS)
    swept = measure(setting.directory / "input", grid_of_input(setting, path), setting.seconds)
    rows = [row_of(record) for record in swept.records]
    ok = {_how(row): row["step_time_median_s"] for row in rows if row["outcome"] == "ok"}
    result = Result(rows=rows, facts={"step_time_s": ok})
    three = {"synthetic", "file, 0 workers", "file, 2 workers"}
    result.checks.append(Check("three runs measure", set(ok) == three, ", ".join(ok) or "none"))
    if set(ok) == three:
        cost = ok["file, 2 workers"] / ok["synthetic"] - 1
        holds = None if setting.gpu == "cpu" else cost < COST
        result.checks.append(Check("a file read by two workers costs less than 2 % of a step", holds, f"{cost:.1%}"))
    return result


def grid_of_input(setting: Setting, path: Path) -> str:
    """One layout, with each way of reading."""
    threads = "threads: 1, cpu_memory: false, " if setting.tiny else "attention: cudnn, "
    axes = f"micro_batch_size: {2 if setting.tiny else 4}\n"
    axes += f"params: {{{threads}data: [synthetic, {path}], data_workers: [0, 2]}}"
    return grid_of(setting, "input", "tiny-1M" if setting.tiny else "Llama-3.2-1B", axes)


def _how(row: dict[str, Any]) -> str:
    params = row["params"]
    return "synthetic" if params["data"] == "synthetic" else f"file, {params.get('data_workers', 0)} workers"


def _file(path: Path, tokens: int) -> Path:
    """Numbers that every model's vocabulary has."""
    if not path.exists():
        numbers = np.random.default_rng(0).integers(256, size=tokens, dtype=np.uint16)
        numbers.tofile(path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)
    return path
