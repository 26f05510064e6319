"""Real failures on the device: each must be named rightly, and leave nothing behind."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.gpu_acceptance.faulty import ENTRY_POINT, FAULTS
from benchmarks.gpu_acceptance.parts import Check, Result, Setting
from benchmarks.gpu_acceptance.processes import gpu_processes
from benchmarks.gpu_acceptance.sweeps import measure, row_of, wait_for

_FAULTY = """
name: acceptance-outcomes
workload: gpu-acceptance-faulty
models: [tiny-1M]
nodes: [1]
sequence_length: 64
global_batch: 64
params: {{fault: [{faults}]}}
timeouts: {{start: 60, first_iteration: 30, steady: 4}}
site: {{name: acceptance, gpu: {gpu}, gpus_per_node: 1, max_local_ranks: 1, pilot_time: 30m}}
"""
_NAN = """
name: acceptance-nan
models: [{model}]
nodes: [1]
sequence_length: 256
global_batch: 2Ki
micro_batch_size: 4
dtype: {dtype}
compile: false
params: {{learning_rate: 1.0e+30, clip_grad: 0.0, cpu_memory: false, threads: 1}}
site: {{name: acceptance, gpu: {gpu}, gpus_per_node: 1, max_local_ranks: 1, pilot_time: 30m}}
"""


def run(setting: Setting) -> Result:
    """Out of memory, a device-side assert, a kernel that does not end, a loss that is no number."""
    result = Result()
    faults = ["''", *FAULTS]
    grid = _FAULTY.format(gpu=setting.gpu, faults=", ".join(faults))
    extra_path = _registered(setting)
    sys.path.append(str(extra_path))  # this process reads the sweep, too
    records = measure(setting.directory / "outcomes", grid, setting.seconds / 2, extra_path=extra_path).records
    model, dtype = ("tiny-1M", "fp32") if setting.tiny else ("Llama-3.2-1B", "bf16")  # a CPU computes bf16 slowly
    nan = _NAN.format(gpu=setting.gpu, model=model, dtype=dtype)
    records += measure(setting.directory / "nan", nan, setting.seconds / 2).records
    result.rows = [row_of(record) for record in records]
    for fault, outcome in {**FAULTS, "": "ok"}.items():
        found = {row["outcome"] for row in result.rows if row["params"].get("fault") == fault}
        result.checks.append(Check(f"{fault or 'no fault'} ends as {outcome}", found == {outcome}, ", ".join(found)))
    named = {row["outcome"] for row in result.rows if "learning_rate" in row["params"]}
    result.checks.append(Check("a loss that is no number ends as nan_loss", named == {"nan_loss"}, ", ".join(named)))
    gone = wait_for(lambda: not gpu_processes(), 20)
    result.checks.append(Check("no process is left on the GPU", gone if setting.gpu != "cpu" else None))
    return result


def _registered(setting: Setting) -> Path:
    """A directory that makes the faulty workload known to processes that have it on PYTHONPATH."""
    folder = setting.directory / "entry-points"
    info = folder / "gpu_acceptance-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gpu-acceptance\nVersion: 0\n")
    (info / "entry_points.txt").write_text(f"[sweep.workloads]\n{ENTRY_POINT}\n")
    return folder
