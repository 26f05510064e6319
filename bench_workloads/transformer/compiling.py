"""torch.compile, layer by layer: every layer has the same code, so one compilation suffices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed.device_mesh import DeviceMesh

    from bench_workloads.transformer.model import Decoder


def apply(part: Decoder, *, on: bool, mode: str | None = None, attention: str = "auto") -> None:
    """Compile the forward of every layer of one stage, in place. Needs a C++ compiler on CPU.

    ``attention``: the kernel that the layers are to call. torch's caches on disk know a graph by the call of attention
    but not by its kernel (pytorch issue 185449): without a tag of its own, a process would get what another compiled.
    """
    if not on:
        return
    torch.compiler.config.cache_key_tag = f"attention={attention}"
    for block in part.blocks:
        block.forward = torch.compile(block.forward, mode=mode)  # type: ignore[method-assign]
        block.compiled = True
    if part.embedding is not None:
        part.embedding.register_forward_hook(_fresh_tensor)


def graphs_compiled() -> int:
    """How many graphs this process has compiled because no cache had them."""
    from torch._dynamo.utils import counters

    return int(counters["inductor"]["fxgraph_cache_miss"])


def overlap_tensor_parallel(mesh: DeviceMesh) -> None:
    """Let the compiler split matrix products to overlap them with the collectives that feed them, over NVLink.

    Raises RuntimeError on a CPU: the exchange is by symmetric memory of GPUs.
    """
    if mesh.device_type != "cuda":
        raise RuntimeError("async_tp needs GPUs that share memory over NVLink, not a CPU: set async_tp to false")
    from torch._inductor import config
    from torch.distributed import _symmetric_memory as symmetric_memory

    config._micro_pipeline_tp = True
    symmetric_memory.enable_symm_mem_for_group(mesh.get_group().group_name)


def _fresh_tensor(_module: Any, _inputs: Any, output: Tensor) -> Tensor:
    """Give the first compiled layer a tensor without other views.

    torch 2.13 loses the embedding's gradient where its output is the local part of a distributed tensor.
    """
    return output * 1.0
