"""Simulated training without a model: ranks sleep for computed times and inject faults. Its declaration.

Nothing here is a measurement: records are marked as simulated.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench_workloads.parameters import Parameters
from bench_workloads.simulated.faults import FAULTS
from bench_workloads.transformer.rules import ARITHMETIC_RULES
from sweep.contract import DISPATCHERS, FORMATS, LAYOUT_FIELDS, ROUTINGS, Workload
from sweep.physics.schedules import SCHEDULES


@dataclass(frozen=True, kw_only=True)
class Settings(Parameters):
    """Simulated times, and which faults occur where and how often."""

    step_s: float = 0.0
    """seconds of one iteration; 0: by the formula"""
    noise: float = 0.01
    """relative spread of the iterations, by the run's and the rank's seed"""
    speed: float = 1.0
    """ranks sleep this many times shorter than they report; above 1 the times are computed, not measured"""
    start_s: float = 0.0
    """seconds of import, rendezvous and build"""
    first_iteration_s: float = 0.0
    """seconds that the first iteration takes longer than the others"""
    peak_tflops: float = 989.0
    """dense peak of the simulated GPU"""
    memory_gb: float = 80.0
    """memory of the simulated GPU, in 10^9 bytes"""
    fault: str = ""
    """the fault: one name, or several with commas of which the run's hash picks one; empty: none"""
    fault_probability: float = 1.0
    """share of runs with the fault, picked by the seed and the run's hash"""
    fault_rank: int = 0
    """the rank that injects it; -1: all ranks"""
    fault_iteration: int = 1
    """the iteration before which it does, counted from 0, warm-up included; -1: at the start"""
    fault_code: int = 3
    """exit code of exit_code; number of the signal of signal"""
    fault_s: float = 3600.0
    """lifetime of a leaked child, and delay of slow operations"""
    one_process_per_node: bool = False
    """all ranks of a node live in one process, so that one machine can simulate many nodes; what ends the process
    ends all of them"""

    def __post_init__(self) -> None:
        unknown = [name for name in self.faults if name not in FAULTS]
        if unknown:
            raise ValueError(f"unknown fault {', '.join(unknown)}: one of {', '.join(FAULTS)}")
        if self.speed <= 0 or self.step_s < 0 or not 0 <= self.noise < 1:
            raise ValueError("speed must be positive, step_s must not be negative, noise must be in [0, 1)")

    @property
    def faults(self) -> list[str]:
        """The faults to pick from."""
        return [name.strip() for name in self.fault.split(",") if name.strip()]


WORKLOAD = Workload(
    name="simulated",
    main="bench_workloads.simulated.main:main",
    axes=frozenset({*LAYOUT_FIELDS, "dtype", "compile"}),
    preload=("bench_workloads.simulated.main",),
    params=Settings.defaults(),
    choices={
        "zero": (0, 1, 2, 3),
        "recompute": ("none", "selective", "full"),
        "pp_schedule": SCHEDULES,
        "dtype": ("fp32", "bf16", "fp16", "fp8", *FORMATS),
        "dispatcher": DISPATCHERS,
        "routing": ROUTINGS,
        "compile": (False, True),
    },
    rules=ARITHMETIC_RULES,
    one_process_param="one_process_per_node",
)
