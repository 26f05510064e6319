"""Units of foreign columns, each as a factor to the unit of the record."""

from __future__ import annotations

from sweep.physics.hardware import GIB

FACTORS: dict[str, dict[str, float]] = {
    "bytes": {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": GIB, "KB": 1e3, "MB": 1e6, "GB": 1e9},
    "fraction": {"fraction": 1, "%": 0.01, "percent": 0.01},
    "s": {"s": 1, "ms": 1e-3, "us": 1e-6, "min": 60, "h": 3600},
    "unix s": {"unix s": 1},
    "tokens/s": {"tokens/s": 1, "K tokens/s": 1e3, "M tokens/s": 1e6},
    "tokens/s/GPU": {"tokens/s/GPU": 1, "K tokens/s/GPU": 1e3},
    "1e12 FLOP/s": {"1e12 FLOP/s": 1, "TFLOP/s": 1, "TFLOPS": 1, "GFLOP/s": 1e-3, "PFLOP/s": 1e3},
    "FLOP": {"FLOP": 1, "GFLOP": 1e9, "TFLOP": 1e12},
    "tokens": {"sequences": 1, "tokens": 1, "K tokens": 1e3, "M tokens": 1e6},
    "sequences": {"sequences": 1},
    "parameters": {"parameters": 1, "million": 1e6, "billion": 1e9},
}
"""unit of the record's column -> unit of the source -> factor; of a batch in sequences still times their length"""


def factor(record_unit: str, source_unit: str | None) -> float | None:
    """The factor for a source's number, 1 if it states no unit; None if the units are incompatible."""
    if source_unit is None or source_unit == record_unit:
        return 1.0
    return FACTORS.get(record_unit, {}).get(source_unit)
