"""Which attention kernel runs: the requested one, and the operator that torch really dispatches to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.backends.cuda import SDPAParams
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "fa3": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}


def prepare(kernel: str) -> None:
    """Install FlashAttention 3 as torch's flash kernel where it is requested. Raises ImportError if there is none."""
    if kernel != "fa3":
        return
    activate = getattr(nn.attention, "activate_flash_attention_impl", None)
    if activate is None:
        raise ImportError(f"attention=fa3: torch {torch.__version__} cannot install FlashAttention 3 as a kernel")
    activate("FA3")


def takes_groups(kernel: str, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the kernel takes fewer heads of keys than of queries. Releases of torch differ in ``efficient`` only."""
    if kernel != "efficient":
        return True
    queries, keys = (torch.zeros(1, heads, 16, 64, device=device, dtype=dtype) for heads in (2, 1))
    taken: bool = torch.backends.cuda.can_use_efficient_attention(
        SDPAParams(queries, keys, keys, None, 0.0, True, True)
    )
    return taken


def chosen(kernel: str) -> AbstractContextManager[Any]:
    """Allow only that kernel; auto leaves the choice to torch."""
    context: AbstractContextManager[Any] = nullcontext() if kernel == "auto" else sdpa_kernel(KERNELS[kernel])
    return context


def dispatched(core: Callable[[Tensor, Tensor, Tensor], Tensor], inputs: tuple[Tensor, Tensor, Tensor]) -> str:
    """The attention operators that a kernel calls for such inputs, joined by commas, with FlashAttention's version.

    Collective where the kernel is: call it on every rank of a context-parallel group.
    """
    seen = _Operators()
    with seen:
        core(*inputs)
    version = getattr(nn.attention, "current_flash_attention_impl", lambda: None)()
    names = [f"{name} ({version})" if version and "flash" in name else name for name in sorted(seen.names)]
    return ",".join(names) or "none"


class _Operators(TorchDispatchMode):
    """Collects the names of attention operators."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator, and note it if it is attention."""
        name = func._schema.name.removeprefix("aten::")
        if "scaled_dot_product" in name or "flash_attn" in name:
            self.names.add(name)
        elif name in ("_softmax", "_safe_softmax"):
            self.names.add("math")
        return func(*args, **(kwargs or {}))
