"""Names and units of what trainers print, and their ways to write a number."""

from __future__ import annotations

from collections.abc import Mapping

NAMES: dict[str, str] = {
    "step_time_s": "seconds of the iteration, or mean over those since the line before",
    "tokens_per_second": "over all GPUs",
    "tokens_per_second_per_gpu": "",
    "samples_per_second": "sequences, over all GPUs",
    "tflops_per_gpu": "10^12 FLOP per second and GPU, as the trainer counts",
    "mfu": "fraction of the peak, as the trainer counts",
    "allocated_bytes": "peak of the allocator's allocated memory",
    "reserved_bytes": "peak of the allocator's reserved memory",
    "loss": "",
    "grad_norm": "",
    "skipped_iterations": "of those that the line stands for, the ones without a step of the optimizer",
}
"""what a reader may tell of an iteration, in these units"""

UNITS: dict[str, tuple[str, float]] = {
    **{name: (name, 1.0) for name in NAMES},
    "step_time_ms": ("step_time_s", 1e-3),
    "mfu_percent": ("mfu", 1e-2),
    **{
        f"{kind}_{unit}": (f"{kind}_bytes", factor)
        for kind in ("allocated", "reserved")
        for unit, factor in (
            ("kb", 1e3),
            ("mb", 1e6),
            ("gb", 1e9),
            ("kib", 2.0**10),
            ("mib", 2.0**20),
            ("gib", 2.0**30),
        )
    },
}
"""further spellings -> (name, factor)"""

NUMBER = r"[-+]?(?:\d[\d,]*(?:\.\d*)?(?:[eE][-+]?\d+)?[KMBGT]?|nan|inf)"
"""a number as trainers write it: 12, 3,400, 1.5e-3, 2.1K, nan"""

_SUFFIXES = {"K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}


def number(text: str) -> float | None:
    """The number that a text like 3,400 or 2.1K or nan states; None where it states none."""
    text = text.strip().replace(",", "")
    factor = _SUFFIXES.get(text[-1:], 1.0)
    try:
        return float(text[:-1] if factor != 1.0 else text) * factor
    except ValueError:
        return None


def in_units(values: Mapping[str, float]) -> dict[str, float]:
    """Values under any spelling of UNITS, as NAMES has them."""
    return {UNITS[name][0]: value * UNITS[name][1] for name, value in values.items() if name in UNITS}
