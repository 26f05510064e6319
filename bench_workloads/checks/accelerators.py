"""Readers of accelerators: what nvidia-smi prints, as it is. A driver that hangs ends at the time limit."""

from __future__ import annotations

import shutil
import time

from bench_workloads.checks.reading import output

LIMIT_S = 14.0


def nvidia_smi() -> str | bool:
    """The whole of ``nvidia-smi -q``; false where it is not installed."""
    return output(["nvidia-smi", "-q"], LIMIT_S) if shutil.which("nvidia-smi") else False


def nvidia_smi_nvlink() -> str:
    """``nvidia-smi nvlink --status``: each link's rate."""
    return output(["nvidia-smi", "nvlink", "--status"], LIMIT_S)


def answer_time() -> float:
    """Seconds until nvidia-smi has listed the GPUs."""
    began = time.monotonic()
    output(["nvidia-smi", "-L"], LIMIT_S)
    return round(time.monotonic() - began, 2)
