"""Readers of accelerators: what nvidia-smi prints, as it is. A driver that hangs ends at the time limit."""

from __future__ import annotations

import subprocess
import time

LIMIT_S = 14.0


def nvidia_smi() -> str:
    """The whole of ``nvidia-smi -q``."""
    return _output(["nvidia-smi", "-q"])


def nvidia_smi_nvlink() -> str:
    """``nvidia-smi nvlink --status``: each link's rate."""
    return _output(["nvidia-smi", "nvlink", "--status"])


def answer_time() -> float:
    """Seconds until nvidia-smi has listed the GPUs."""
    began = time.monotonic()
    _output(["nvidia-smi", "-L"])
    return round(time.monotonic() - began, 2)


def _output(command: list[str]) -> str:
    """What it prints. Raises OSError, TimeoutExpired, and RuntimeError where it fails."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout).strip()[:200] or f"exit {done.returncode}")
    return done.stdout
