"""Sweeps of one model each: the fastest layout, what compilation and kernels give, memory as predicted and measured."""

from __future__ import annotations

import statistics
import subprocess
from typing import Any

from benchmarks.gpu_acceptance.parts import Check, Result, Setting
from benchmarks.gpu_acceptance.sweeps import SWEEP, measure, row_of

GOALS = {"Llama-3.2-1B": 0.45, "Llama-3.2-3B": 0.50, "Llama-3-8B": 0.50}
"""MFU of the best layout"""
MEMORY_TOLERANCE = 0.10
"""of a predicted peak: what the plan allows for"""
NOISE_TOLERANCE = 0.02
"""spread of the medians of repeats"""
EXAMPLE_RUNS = 3
"""one of each model"""
DRAWING_S = 30.0
"""to draw the heatmap"""

GRID = """
name: acceptance-{name}
models: [{model}]
nodes: [1]
sequence_length: {sequence}
global_batch: {batch}
dtype: bf16
{axes}
max_memory_share: 0.97
max_run_time: 4m
strategy: exhaustive
remeasure: 0
site: {{name: acceptance, gpu: {gpu}, gpus_per_node: 1, max_local_ranks: 1, pilot_time: 1h}}
"""
_AXES_1B = """
micro_batch_size: 4
compile: [true, false]
params: {attention: [flash, cudnn]}
include:
  - {micro_batch_size: 8, compile: true, attention: cudnn}
  - {micro_batch_size: 8, compile: true, attention: cudnn, recompute: selective}
  - {micro_batch_size: 2, compile: true, attention: cudnn}
  - {micro_batch_size: 8, compile: true, attention: cudnn, recompute: full}
"""
_AXES_3B = """
micro_batch_size: [2, 4]
recompute: [none, selective]
compile: true
params: {attention: cudnn}
"""
_AXES_8B = """
micro_batch_size: 1
recompute: [none, selective, full]
compile: true
params: {weights_dtype: bf16, attention: cudnn}
include:
  - {micro_batch_size: 2, recompute: selective}
"""
_AXES_NOISE = "micro_batch_size: 4\ncompile: true\nrepeats: 4"
_TINY = "micro_batch_size: 2\nparams: {threads: 1, cpu_memory: false, weights_dtype: bf16}"
_TINY_1B = "micro_batch_size: 2\nparams: {threads: 1, attention: [auto, math]}"
"""one thread: a rehearsal shares the machine's cores with the tests"""

AXES = {
    "layouts-1b": ("Llama-3.2-1B", _AXES_1B, _TINY_1B),
    "layouts-3b": ("Llama-3.2-3B", _AXES_3B, _TINY),
    "layouts-8b": ("Llama-3-8B", _AXES_8B, _TINY),
    "noise": ("Llama-3.2-1B", _AXES_NOISE, f"{_TINY}\nrepeats: 2"),
}
"""part -> its model, and the axes of its sweep on a GPU and in a rehearsal"""


def run_1b(setting: Setting) -> Result:
    """Compilation, kernels, micro-batches."""
    result = _swept(setting, "layouts-1b")
    ok = [row for row in result.rows if row["outcome"] == "ok"]
    for axis, of in (("compilation", lambda row: row["compile"]), ("kernels", lambda row: row["params"]["attention"])):
        speeds = {str(of(row)): row["tokens_per_second_per_gpu"] for row in sorted(ok, key=_speed)}
        result.facts[f"best_by_{axis}"] = speeds
    return result


def run_3b(setting: Setting) -> Result:
    """Micro-batches and recomputation."""
    return _swept(setting, "layouts-3b")


def run_8b(setting: Setting) -> Result:
    """With weights and optimizer states in bf16."""
    return _swept(setting, "layouts-8b")


def run_noise(setting: Setting) -> Result:
    """One layout, repeated: by how much do runs differ, and do their stated intervals cover it?"""
    result = _swept(setting, "noise", with_goals=False)
    medians = [row["step_time_median_s"] for row in result.rows if row["outcome"] == "ok"]
    if len(medians) > 1:
        spread = (max(medians) - min(medians)) / statistics.median(medians)
        result.facts["spread_of_medians"] = spread
        holds = None if setting.gpu == "cpu" else spread < NOISE_TOLERANCE
        result.checks.append(Check("repeats differ by less than 2 %", holds, f"{spread:.2%} over {len(medians)}"))
    return result


def run_example(setting: Setting) -> Result:
    """The example of the README, within a budget."""
    directory = setting.directory / "example"
    grid = grid_of(setting, "example", "tiny-1M", _TINY) if setting.tiny else _example(setting)
    swept = measure(directory, grid, setting.seconds - DRAWING_S)
    rows = [row_of(record) for record in swept.records]
    picture = setting.directory / "heatmap.png"
    drawn = subprocess.run([*SWEEP, "heatmap", str(directory), "--out", str(picture)], check=False, capture_output=True)
    checks = [
        Check("it measures", any(row["outcome"] == "ok" for row in rows), f"{len(rows)} attempts"),
        Check("the heatmap is drawn", picture.exists(), drawn.stderr.decode()[-200:]),
    ]
    return Result(checks, {"heatmap": picture.name}, rows)


def grid_of_part(setting: Setting, name: str) -> str:
    """The grid of one of the AXES' parts."""
    model, axes, tiny = AXES[name]
    return grid_of(setting, name, "tiny-1M" if setting.tiny else model, tiny if setting.tiny else axes)


def _swept(setting: Setting, name: str, *, with_goals: bool = True) -> Result:
    model = AXES[name][0]
    swept = measure(setting.directory / name, grid_of_part(setting, name), setting.seconds)
    rows = [row_of(record) for record in swept.records]
    result = Result(rows=rows)
    ok = [row for row in rows if row["outcome"] == "ok"]
    failed = [f"{row['run_id']}: {row['outcome']}" for row in rows if row["outcome"] != "ok"]
    counted = f"{len(ok)} of {swept.planned} runs"
    result.checks.append(Check(f"{model}: all runs end ok", len(ok) == swept.planned, "; ".join([counted, *failed])))
    if with_goals and ok:
        best = max(ok, key=_speed)
        result.facts["best"] = best["run_id"]
        result.checks += [_mfu_check(model, best, setting), _memory_check(ok, setting)]
    return result


def grid_of(setting: Setting, name: str, model: str, axes: str) -> str:
    """A sweep of one model on one GPU."""
    sequence, batch = ("64", "256") if setting.tiny else ("4096", "64Ki")
    return GRID.format(name=name, model=model, axes=axes, sequence=sequence, batch=batch, gpu=setting.gpu)


def _example(setting: Setting) -> str:
    from tests.support.paths import REPOSITORY

    text = (REPOSITORY / "examples" / "one-gpu.yaml").read_text()
    return text.replace("gpu: h200", f"gpu: {setting.gpu}") + f"budget: {{runs: {EXAMPLE_RUNS}}}\n"


def _speed(row: dict[str, Any]) -> float:
    return float(row["tokens_per_second_per_gpu"] or 0.0)


def _mfu_check(model: str, best: dict[str, Any], setting: Setting) -> Check:
    goal = GOALS[model]
    holds = None if setting.gpu == "cpu" or best["mfu"] is None else best["mfu"] >= goal
    text = "no peak" if best["mfu"] is None else f"{best['mfu']:.1%}"
    return Check(f"{model}: at least {goal:.0%} MFU", holds, f"{text} ({best['flops_convention']})")


def _memory_check(rows: list[dict[str, Any]], setting: Setting) -> Check:
    ratios = [row["peak_memory_bytes"] / row["predicted_peak_bytes"] for row in rows if row["peak_memory_bytes"]]
    statement = "measured peaks are within 10 % of the predicted ones"
    if not ratios:
        return Check(statement, None, "no peak was measured")
    worst = max(ratios, key=lambda ratio: abs(ratio - 1))
    holds = None if setting.gpu == "cpu" else abs(worst - 1) <= MEMORY_TOLERANCE
    return Check(statement, holds, f"measured / predicted {min(ratios):.2f} to {max(ratios):.2f}")
