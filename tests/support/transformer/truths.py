"""The truth table written by the layout tests: each layout's distance from one process; what torch cannot do."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Truths:
    """The results of a test session, in order."""

    compared: list[tuple] = field(default_factory=list)
    """(layout, dtype, ranks, distances of loss and norm or None where the test failed, seconds)"""
    refused: list[tuple[str, str, str]] = field(default_factory=list)
    """(layout, what happens if it is still run, the plan's reason)"""


def page(found: Truths) -> str:
    import torch

    lines, failed = len(found.compared), sum(distances is None for _, _, _, distances, _ in found.compared)
    return "\n".join(
        [
            "# Layouts against one process",
            "",
            f"Made by `make test-parallel` with torch {torch.__version__}: {lines} lines, {failed} failed.",
            "Relative distance of losses and gradient norms over three optimizer steps, the worst over steps and",
            "ranks. Allowed are 1e-6 for both in fp32; 1e-3 for the loss and 5e-3 for the norm in bf16. In 8 bits",
            "(emulated) 1e-6 where the sums are the same; else 3e-4 and 2e-2, what one process in other micro-batches",
            "differs by.",
            "",
            "| layout | dtype | ranks | loss | norm | seconds |",
            "|---|---|---|---|---|---|",
            *(_line(*row) for row in found.compared),
            "",
            "## What torch cannot do, or gets wrong",
            "",
            "The plan rejects each with its reason. When still run, this happens:",
            "",
            "| layout | what happens | the plan's reason |",
            "|---|---|---|",
            *(f"| {' | '.join(row)} |" for row in found.refused),
            "",
        ]
    )


def _line(name: str, dtype: str, ranks: int, distances: tuple[float, float] | None, seconds: float) -> str:
    loss, norm = ("failed", "failed") if distances is None else (f"{d:.1e}" for d in distances)
    return f"| {name} | {dtype} | {ranks} | {loss} | {norm} | {seconds:.1f} |"
