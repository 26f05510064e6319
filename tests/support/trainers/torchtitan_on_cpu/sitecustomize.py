"""torchtitan 0.3 takes CUDA where torch finds no accelerator. With this on the path its device is the CPU, by gloo.

Replaced: torch's answer to "which accelerator" (`torch._utils`), and what `torch.cpu` lacks of `torch.cuda` for
torchtitan's memory monitor; flex attention, which has no backward on the CPU; FSDP's scaled sum, which
gloo has not. torchtitan itself is unmodified.
"""

import importlib.abc
import os
import sys
from types import SimpleNamespace


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Acts once torch is imported: when torchtitan is asked for."""

    def find_spec(self, name, path=None, target=None):
        if name == "torchtitan":
            sys.meta_path.remove(self)
            _replace()
        return


def _plain_attention(query, key, value, *, block_mask=None, scale=None, enable_gqa=False, return_aux=None, **_):
    """Causal, as block masks of one document are; with no log-sum-exp."""
    import torch

    out = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=scale, enable_gqa=enable_gqa
    )
    return (out, SimpleNamespace(lse=None)) if return_aux is not None else out


def _replace():
    import torch
    from torch.distributed.fsdp._fully_shard import _fsdp_collectives
    from torch.nn.attention import flex_attention

    factors = _fsdp_collectives._get_gradient_divide_factors
    _fsdp_collectives._get_gradient_divide_factors = lambda *a, force_sum_reduction_for_comms=True, **k: factors(
        *a[:5], force_sum_reduction_for_comms=True, **k
    )
    flex_attention.flex_attention = _plain_attention

    torch._utils._get_available_device_type = lambda: "cpu"
    torch._utils._get_device_module = lambda _: torch.cpu
    torch.cpu.get_device_name = lambda _=None: "CPU"
    torch.cpu.get_device_properties = lambda _=None: SimpleNamespace(total_memory=2**34)
    torch.cpu.memory_stats = lambda _=None: {}
    torch.cpu.reset_peak_memory_stats = lambda: None
    torch.cpu.empty_cache = lambda: None
    torch.cpu.device_count = lambda: 1_000
    torch.cpu.current_device = lambda: 0
    torch.distributed.set_timeout = lambda *_: None  # of torch after 2.13
    torch.distributed.Backend.default_device_backend_map["cpu"] = "gloo"


os.environ["TORCH_COMPILE_DISABLE"] = "1"
sys.meta_path.insert(0, _AfterTorch())
