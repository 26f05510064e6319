"""Replaces packages that need CUDA to be built, so that trainers check their configurations without a GPU.

Stubs: transformer_engine (of which FusedAdam has real argument names), mamba_ssm, causal_conv1d, flash-linear-attention
(fla), modelopt, deep_ep, grouped_gemm, apex, nvtx, open_clip, timm, mlflow, megatron.energon. Any attribute of one is a
class; any submodule exists. The GPU is said to be a B200.
"""

import importlib.abc
import importlib.machinery
import sys
import types

NAMES = ("transformer_engine", "transformer_engine_torch", "mamba_ssm", "causal_conv1d", "fla", "modelopt", "deep_ep")
NAMES += ("grouped_gemm", "apex", "nvtx", "open_clip", "timm", "mlflow", "multistorageclient", "qwen_vl_utils")
NAMES += ("nvidia_resiliency_ext", "megatron.energon")
GPU = types.SimpleNamespace(major=10, minor=0, name="NVIDIA B200", total_memory=192 * 10**9)


class _Class(type):
    def __getitem__(cls, _):
        return cls

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _made(name)


class FusedAdam:
    """With the arguments that Megatron Core looks for."""

    def __init__(
        self,
        exp_avg_dtype=None,
        exp_avg_sq_dtype=None,
        master_weight_dtype=None,
        master_weights=None,
        store_param_remainders=None,
        use_decoupled_grad=None,
    ):
        pass


def _made(name):
    return FusedAdam if name == "FusedAdam" else _Class(name, (), {"__init__": lambda *_, **__: None})


class _Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, _made(name))
        return vars(self)[name]


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if any(name == one or name.startswith(f"{one}.") for one in NAMES):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = _Module(spec.name)
        module.__version__ = "2.11.0"
        module.ElasticBuffer = object  # by which torchtitan knows DeepEP 2
        return module

    def exec_module(self, module):
        pass


def use():
    """Before the trainer is imported."""
    import torch

    sys.meta_path.insert(0, _Finder())
    torch.cuda.get_device_properties = lambda *_: GPU
    torch.cuda.get_device_capability = lambda *_: (GPU.major, GPU.minor)
