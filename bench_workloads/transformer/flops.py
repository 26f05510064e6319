"""FLOPs that a rank really executes, recomputation included, counted operator by operator in one untimed iteration.

As ``torch.utils.flop_counter.FlopCounterMode``, with three differences that matter here: operators on distributed
tensors are counted where they run, on local shards; attention on CPU counts; nothing hooks into modules, so that it
works inside pipelines. 1 multiply-add = 2 FLOP. Attention counts every key passed to a kernel, masked or not; its
backward counts five matrix products to the forward's two.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

ATTENTION_FORWARD = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
)
_FIRST_FACTOR = {"mm": 0, "bmm": 0, "_scaled_mm": 0, "_grouped_mm": 0, "addmm": 1, "baddbmm": 1}
"""products (…, m, k) @ (…, k, n) -> which of the operator's arguments the first factor is"""


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
        if name in _FIRST_FACTOR:
            left, right = args[_FIRST_FACTOR[name] :][:2]
            self.matmul += 2 * left.numel() * right.shape[-1]
        elif name in ATTENTION_FORWARD:
            self.attention += 2 * _scores(args[0], args[1]) * (args[0].shape[-1] + args[2].shape[-1])
        elif name.removesuffix("_backward") in ATTENTION_FORWARD:
            self.attention += 2 * _scores(args[1], args[2]) * (3 * args[1].shape[-1] + 2 * args[3].shape[-1])
        return out


def _scores(queries: Tensor, keys: Tensor) -> int:
    """Entries of the matrix of scores: batch * heads * queries * keys."""
    batch, heads, length, _ = queries.shape
    return int(batch * heads * length * keys.shape[-2])


def global_counts(counter: ExecutedFlops, device: torch.device) -> dict[str, int]:
    """Executed FLOPs of one optimizer step, summed over all ranks."""
    both = torch.tensor([counter.matmul, counter.attention], dtype=torch.float64, device=device)
    torch.distributed.all_reduce(both)
    matmul, attention = (int(value) for value in both.tolist())
    return {"executed_matmul_flops_per_step": matmul, "executed_attention_flops_per_step": attention}
