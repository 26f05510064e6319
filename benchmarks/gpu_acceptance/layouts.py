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
LOSS_TOLERANCE = 2e-3
"""relative difference of losses after a restore, in bf16: beyond it the kernels' order of sums does not explain it"""
EXAMPLE_RUNS = 3
"""one of each model"""
DRAWING_S = 30.0
"""to draw the heatmap"""

GRID = """
name: acceptance-{name}
models: {models}
nodes: [1]
sequence_length: {sequence}
global_batch: {batch}
dtype: bf16
{axes}
max_memory_share: 0.97
max_run_time: 4m
strategy: exhaustive
remeasure: 0
site:
  {{name: acceptance, gpu: {gpu}, gpus_per_node: 1, max_local_ranks: 1, pilot_time: 1h, checkpoint_dir: {directory}}}
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
EXPERTS = """
  Qwen3-30B-A3B-6-layers: {num_layers: 6, hidden_size: 2048, num_heads: 32, num_kv_heads: 4, head_dim: 128,
    intermediate_size: 6144, vocab_size: 151936, qk_norm: true, num_experts: 128, experts_per_token: 8,
    moe_intermediate_size: 768}
  Mixtral-8x7B-3-layers: {num_layers: 3, hidden_size: 4096, num_heads: 32, num_kv_heads: 8, intermediate_size: 14336,
    vocab_size: 32000, num_experts: 8, experts_per_token: 2, moe_intermediate_size: 14336}"""
"""many small experts and few large ones, with as many layers as fit into 80 GB"""
TINY_EXPERTS = """
  tiny-experts: {num_layers: 2, hidden_size: 64, num_heads: 2, intermediate_size: 64, vocab_size: 256, num_experts: 4,
    experts_per_token: 2, moe_intermediate_size: 64}"""
_AXES_EXPERTS = """
micro_batch_size: [2, 4]
compile: true
params: {weights_dtype: bf16, attention: cudnn}
include:
  - {micro_batch_size: 4, compile: false}
"""
_AXES_CHECKPOINTS = """
micro_batch_size: 4
compile: true
params: {weights_dtype: bf16, attention: cudnn, checkpoint: [none, sync, async, async_pinned]}
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
    "experts": (EXPERTS, _AXES_EXPERTS, _TINY),
    "checkpoints": (
        "Qwen3-0.6B",
        _AXES_CHECKPOINTS,
        _TINY.replace("}", ", checkpoint: [none, sync, async, async_pinned]}"),
    ),
}
"""part -> its model or shapes, and the axes of its sweep on a GPU and in a rehearsal"""


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


def run_experts(setting: Setting) -> Result:
    """Mixtures of experts: grouped products, compiled or not."""
    return _swept(setting, "experts")


def run_checkpoints(setting: Setting) -> Result:
    """What writing a checkpoint costs on a GPU: asynchronous ones must not make training wait for the disk."""
    result = _swept(setting, "checkpoints", with_goals=False)
    stalls = {r["params"].get("checkpoint"): r["checkpoint_stall_s"] for r in result.rows if "checkpoint_stall_s" in r}
    result.facts["stall_s"] = stalls
    shorter = {"sync", "async"} <= set(stalls) and stalls["async"] < stalls["sync"]
    result.checks.append(Check("training waits less for an asynchronous one", shorter, str(stalls)))
    differences = [row["checkpoint_loss_difference"] for row in result.rows if "checkpoint_loss_difference" in row]
    equal = len(differences) == len(stalls) and all(difference < LOSS_TOLERANCE for difference in differences)
    result.checks.append(Check("training goes on from a checkpoint as without it", equal, str(differences)))
    return result


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
    small = TINY_EXPERTS if model == EXPERTS else "tiny-1M"
    return grid_of(setting, name, small if setting.tiny else model, tiny if setting.tiny else axes)


def _swept(setting: Setting, name: str, *, with_goals: bool = True) -> Result:
    model = AXES[name][0]
    swept = measure(setting.directory / name, grid_of_part(setting, name), setting.seconds)
    rows = [row_of(record) for record in swept.records]
    result = Result(rows=rows)
    ok = [row for row in rows if row["outcome"] == "ok"]
    failed = [f"{row['run_id']}: {row['outcome']}" for row in rows if row["outcome"] != "ok"]
    counted = f"{len(ok)} of {swept.planned} runs"
    result.checks.append(Check(f"{name}: all runs end ok", len(ok) == swept.planned, "; ".join([counted, *failed])))
    if with_goals and ok:
        best = max(ok, key=_speed)
        result.facts["best"] = best["run_id"]
        result.checks.append(_memory_check(ok, setting))
        if model in GOALS:
            result.checks.append(_mfu_check(model, best, setting))
    return result


def grid_of(setting: Setting, name: str, model: str, axes: str) -> str:
    """A sweep on one GPU, of a model of the catalogue or of shapes."""
    sequence, batch = ("64", "256") if setting.tiny else ("4096", "64Ki")
    models = model if ":" in model else f"[{model}]"
    where = setting.directory
    return GRID.format(
        name=name, models=models, axes=axes, sequence=sequence, batch=batch, gpu=setting.gpu, directory=where
    )


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
