"""Sweeps of the acceptance: launched by the command line as a user does, and read from their journals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.contract import LAYOUT
from sweep.physics import memory
from sweep.physics.profiles import profile_of
from sweep.state.events import Recorded, decoder
from sweep.store.directory import SweepDir
from sweep.store.journal import JournalReader
from sweep.store.sweep import open_sweep

SWEEP = [sys.executable, "-m", "sweep.cli.main"]
END_S = 40.0
"""what is left of a part's time when its sweep is cancelled: to clear, and to read the records"""


@dataclass(frozen=True)
class Swept:
    """What a sweep has measured."""

    records: list[dict[str, Any]]
    """the last of each run: a run that was cut off and then measured is measured"""
    planned: int
    """runs to measure"""


def measure(directory: Path, grid: str, seconds: float, *, extra_path: Path | None = None) -> Swept:
    """A sweep, begun or resumed, that is cancelled when the time is over."""
    path = directory.with_suffix(".yaml")
    path.write_text(grid)
    words = ["resume", directory, "--adopt"]  # on a borrowed machine's wiped disk it is a copy
    if not (directory / "provenance.json").exists():
        words = ["launch", path, "--dir", directory, "--executor", "local", "--yes"]
    environment = dict(os.environ)
    if extra_path is not None:
        environment["PYTHONPATH"] = os.pathsep.join([str(extra_path), environment.get("PYTHONPATH", "")])
    child = subprocess.Popen([*SWEEP, *map(str, words)], env=environment, stdin=subprocess.DEVNULL)
    try:
        child.wait(max(10.0, seconds - END_S))
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            child.kill()
        cancel(directory, environment)
    return swept_in(directory)


def swept_in(directory: Path) -> Swept:
    """What the sweep in a directory has measured so far; of nothing where it was never begun."""
    if not (directory / "provenance.json").exists():
        return Swept([], 0)
    events = JournalReader(SweepDir(directory), decode=decoder(dict)).new_events()
    last = {event.record["run_id"]: dict(event.record) for event in events if isinstance(event, Recorded)}
    return Swept(list(last.values()), len(open_sweep(directory).runs))


def cancel(directory: Path, environment: dict[str, str] | None = None) -> None:
    """End a sweep's processes: a local leader is a session of its own, which outlives a launcher that was killed."""
    command = [*SWEEP, "cancel", str(directory)]
    subprocess.run(command, check=False, timeout=60, stdin=subprocess.DEVNULL, env=environment)


def row_of(record: dict[str, Any]) -> dict[str, Any]:
    """What the results have of a record: its configuration, speed, memory as predicted and measured."""
    names = (
        *("run_id", "model", "micro_batch_size", "grad_accum", "recompute", "compile", "repeat", "outcome", "message"),
        *("tokens_per_second_per_gpu", "step_time_median_s", "mfu", "hfu", "peak_memory_bytes", "notes", "total_s"),
        *("peak_memory_reserved_bytes", "flops_convention"),
    )
    row = {name: record.get(name) for name in names}
    row["params"] = json.loads(record["params_json"])
    row["predicted_peak_bytes"] = _predicted(record)
    further = json.loads(record.get("extra_json") or "{}")
    selected = (
        "attention_kernel",
        "sm_clock_mhz",
        "power_w",
        "device_samples",
        "device",
        "phases_s",
    )
    measured = [name for name in further if name in selected or name.startswith("checkpoint_")]
    return row | {name: further[name] for name in measured}


def _predicted(record: dict[str, Any]) -> int | None:
    names = LAYOUT
    columns = {**json.loads(record["shape_json"]), **{name: record[name] for name in names}}
    columns |= {"sequence_length": record["sequence_length"], "dtype": record["dtype"]}
    profile = profile_of(record["workload"], json.loads(record["params_json"]), compiled=bool(record["compile"]))
    return None if profile is None else int(memory.peak_bytes(columns, profile))


def wait_for(condition: Any, seconds: float) -> bool:
    """Whether the condition became true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.2)
    return False
