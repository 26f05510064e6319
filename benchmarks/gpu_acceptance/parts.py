"""The parts, in the order of their value, and what each reports."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

PASSED, FAILED, TIMED_OUT = "passed", "failed", "timed out"


@dataclass(frozen=True)
class Setting:
    """Where and at which size a part runs."""

    directory: Path
    gpu: str
    """a kind of `sweep.physics.hardware.GPUS`, or cpu"""
    tiny: bool
    """rehearsal: tiny models, few cases"""
    seconds: float
    """the part's time limit"""


@dataclass(frozen=True)
class Check:
    """One statement that holds or not. Without a GPU some cannot be judged: `holds` is None."""

    statement: str
    holds: bool | None
    detail: str = ""


@dataclass
class Result:
    """What a part found."""

    checks: list[Check] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    """measurements, one per run or case"""

    @property
    def passed(self) -> bool:
        return all(check.holds is not False for check in self.checks)

    def write(self, path: Path, status: str, seconds: float) -> None:
        """Replace the part's file, whole."""
        text = json.dumps({"status": status, "seconds": round(seconds, 1), **asdict(self)}, indent=1)
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").replace(path)


@dataclass(frozen=True)
class Part:
    """One part of the acceptance."""

    name: str
    title: str
    run: str
    """"module:function" of (Setting) -> Result"""
    limit_s: float


_HERE = "benchmarks.gpu_acceptance"
PARTS = (
    Part("environment", "Software, driver and device", f"{_HERE}.environment:run", 60),
    Part("truth", "Losses and gradient norms against one plain process", f"{_HERE}.truth:run", 340),
    Part("layouts-1b", "1B: compilation, attention kernels, memory, MFU", f"{_HERE}.layouts:run_1b", 420),
    Part("layouts-8b", "8B: memory, MFU", f"{_HERE}.layouts:run_8b", 350),
    Part("layouts-3b", "3B: memory, MFU", f"{_HERE}.layouts:run_3b", 260),
    Part("experts", "Mixtures of experts: kernels, memory", f"{_HERE}.layouts:run_experts", 345),
    Part("checkpoints", "What writing a checkpoint costs", f"{_HERE}.layouts:run_checkpoints", 300),
    Part("outcomes", "Failures on the device, and how they are named", f"{_HERE}.outcomes:run", 240),
    Part("processes", "Fork from the fork server; teardown", f"{_HERE}.processes:run", 120),
    Part("noise", "Repeats of one layout", f"{_HERE}.layouts:run_noise", 200),
    Part("input", "What a real token file costs, by worker processes", f"{_HERE}.input_pipeline:run", 170),
    Part("example", "sweep launch examples/one-gpu.yaml, to its heatmap", f"{_HERE}.layouts:run_example", 240),
)
"""at most 8 minutes each, and 51 in all"""

Runner = Callable[[Setting], Result]
