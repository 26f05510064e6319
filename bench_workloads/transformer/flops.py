"""FLOPs that a rank really executes, recomputation included, counted operator by operator in one untimed iteration.

As ``torch.utils.flop_counter.FlopCounterMode``, with three differences that matter here: operators on distributed
tensors are counted where they run, on local shards; attention on CPU counts; nothing hooks into modules, so that it
works inside pipelines. 1 multiply-add = 2 FLOP. Attention counts every key passed to a kernel, masked or not; its
backward counts five matrix products to the forward's two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

_ATTENTION_FORWARD = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
)


class ExecutedFlops(TorchDispatchMode):
    """Counts inside its ``with`` block."""

    def __init__(self) -> None:
        super().__init__()
        self.matmul = 0
        self.attention = 0
        self.operators: set[str] = set()
        """names of all that ran"""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator and add what it costs."""
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        self.operators.add(name)
        if name in _MATMULS:
            self.matmul += _MATMULS[name](args)
        elif name in _ATTENTION_FORWARD:
            self.attention += 2 * _scores(args[0], args[1]) * (args[0].shape[-1] + args[2].shape[-1])
        elif name.removesuffix("_backward") in _ATTENTION_FORWARD:
            self.attention += 2 * _scores(args[1], args[2]) * (3 * args[1].shape[-1] + 2 * args[3].shape[-1])
        return out


def _scores(queries: Tensor, keys: Tensor) -> int:
    """Entries of the matrix of scores: batch * heads * queries * keys."""
    batch, heads, length, _ = queries.shape
    return int(batch * heads * length * keys.shape[-2])


def _product(a: Tensor, b: Tensor) -> int:
    """FLOPs of a (…, m, k) @ b (…, k, n)."""
    return int(2 * a.numel() * b.shape[-1])


_MATMULS: dict[str, Callable[[tuple[Any, ...]], int]] = {
    "mm": lambda args: _product(args[0], args[1]),
    "bmm": lambda args: _product(args[0], args[1]),
    "addmm": lambda args: _product(args[1], args[2]),
    "baddbmm": lambda args: _product(args[1], args[2]),
    "_scaled_mm": lambda args: _product(args[0], args[1]),
    "_grouped_mm": lambda args: _product(args[0], args[1]),
}


def global_counts(counter: ExecutedFlops, device: torch.device) -> dict[str, int]:
    """Executed FLOPs of one optimizer step, summed over all ranks."""
    both = torch.tensor([counter.matmul, counter.attention], dtype=torch.float64, device=device)
    torch.distributed.all_reduce(both)
    matmul, attention = (int(value) for value in both.tolist())
    return {"executed_matmul_flops_per_step": matmul, "executed_attention_flops_per_step": attention}
