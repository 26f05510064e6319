"""Processes on the GPUs that this job was given, as nvidia-smi tells. Not verified on hardware."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping

ANSWER_S = 10.0
POLL_S = 0.5


def allocated(environment: Mapping[str, str] | None = None) -> frozenset[str] | None:
    """Indices or UUIDs of the GPUs of this job; None where nothing says which they are: then none is looked at."""
    source = os.environ if environment is None else environment
    for name in ("CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"):
        names = frozenset(part.strip() for part in source.get(name, "").split(",") if part.strip())
        if names:
            return names
    return None


def left_on_gpus(wait_s: float) -> list[str]:
    """Living processes on the allocated GPUs once `wait_s` went by, in words; empty where there is no nvidia-smi."""
    ours = allocated()
    if ours is None or shutil.which("nvidia-smi") is None:
        return []
    deadline = time.monotonic() + wait_s
    while True:
        left = [f"pid {pid} on GPU {uuid}" for pid, uuid in _processes(ours) if _lives(pid)]
        if not left or time.monotonic() >= deadline:
            return left
        time.sleep(POLL_S)


def _processes(ours: frozenset[str]) -> list[tuple[int, str]]:
    uuids = {uuid for index, uuid in _rows("--query-gpu=index,uuid") if ours & {index, uuid}}
    rows = _rows("--query-compute-apps=pid,gpu_uuid")
    return [(int(pid), uuid) for pid, uuid in rows if pid.isdigit() and uuid in uuids]


def _rows(query: str) -> list[tuple[str, str]]:
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    pairs = [line.split(",", 1) for line in done.stdout.splitlines() if "," in line]
    return [(first.strip(), second.strip()) for first, second in pairs]


def _lives(pid: int) -> bool:
    """nvidia-smi may list the dead."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
