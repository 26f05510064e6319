"""How fast a device multiplies: a model's matrices, square ones, the best SwiGLU width. Its declaration.

Peaks of GPUs belong to ``sweep.physics.hardware``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench_workloads.parameters import Parameters
from sweep.physics.shapes import ModelShape

if TYPE_CHECKING:
    from sweep.contract import Run

from sweep.contract import Rule, Workload


@dataclass(frozen=True, kw_only=True)
class Settings(Parameters):
    """What is multiplied besides the model's own matrices."""

    squares: str = "1024,2048,4096"
    """comma-separated sizes of square products; empty: none"""
    width_steps: int = 8
    """SwiGLU widths to try on either side of 8/3 of the hidden size; 0: none"""
    width_step: int = 16
    """distance between widths"""
    repeats: int = 5
    """consecutive calls per timing, which is their mean"""


@dataclass(frozen=True)
class Product:
    """(m, k) @ (k, n)."""

    name: str
    m: int
    k: int
    n: int

    @property
    def flops(self) -> int:
        """1 multiply-add = 2 FLOP."""
        return 2 * self.m * self.k * self.n


def products(run: Run, settings: Settings) -> list[Product]:
    """The products of one layer's forward on one rank, the output projection, square products, and SwiGLU widths."""
    shape, layout = ModelShape(**run.shape), run.layout  # type: ignore[arg-type]
    tokens = layout.micro_batch_size * run.sequence_length // layout.cp
    hidden, tp = shape.hidden_size, layout.tp
    width = shape.moe_intermediate_size or shape.intermediate_size
    return [
        Product("query", tokens, hidden, shape.num_heads * shape.head_dim // tp),
        Product("key_value", tokens, hidden, 2 * shape.num_kv_heads * shape.head_dim // tp),
        Product("attention_output", tokens, shape.num_heads * shape.head_dim // tp, hidden),
        Product("mlp_up", tokens, hidden, width // tp),
        Product("mlp_down", tokens, width // tp, hidden),
        Product("logits", tokens, hidden, shape.vocab_size // tp),
        *(Product("square", edge, edge, edge) for edge in map(int, filter(None, settings.squares.split(",")))),
        *(Product("swiglu_width", tokens, hidden, width) for width in swiglu_widths(hidden, settings)),
    ]


def swiglu_widths(hidden: int, settings: Settings) -> list[int]:
    """Widths around 8/3 of the hidden size: that itself, and multiples of the step below and above.

    >>> swiglu_widths(4096, Settings(width_steps=1, width_step=64))
    [10880, 10922, 10944]
    """
    if not settings.width_steps:
        return []
    middle, step = 8 * hidden // 3, settings.width_step
    below = middle // step * step
    multiples = [below + step * i for i in range(1 - settings.width_steps, settings.width_steps + 1)]
    return sorted({middle, *(w for w in multiples if w > 0)})


WORKLOAD = Workload(
    name="matmul",
    main="bench_workloads.matmul.main:main",
    axes=frozenset({"dp", "tp", "cp", "micro_batch_size", "grad_accum", "dtype"}),
    preload=("torch", "bench_workloads.matmul.main"),
    params=Settings.defaults(),
    choices={"dtype": ("fp32", "bf16")},
    rules=(
        Rule(
            name="heads_by_tp",
            broken=lambda c: (c["num_heads"] % c["tp"] != 0) | (c["num_kv_heads"] % c["tp"] != 0),
            reason="{num_heads} and {num_kv_heads} heads cannot be split over tp={tp}",
        ),
        Rule(
            name="mlp_by_tp",
            broken=lambda c: c["intermediate_size"] % c["tp"] != 0,
            reason="an MLP of width {intermediate_size} cannot be split evenly over tp={tp}",
        ),
    ),
)
