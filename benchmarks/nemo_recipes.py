"""What NVIDIA's recipes of mixtures set beside a table's columns: dispatcher, overlap, CUDA graphs, recomputation.

From scripts/performance of NVIDIA-NeMo/Megatron-Bridge at v0.1.0rc4 (container 25.09), v0.2.0 (25.11), v0.3.0 (26.02),
v0.4.0 (26.04), v0.5.0 (26.06), and src/megatron/bridge/perf_recipes of 2026-08-22 (26.08): the facts of a family and a
kind of GPU from the first container that has them on, by date.
"""

from __future__ import annotations

from typing import Any

_ROUTER, _LAYERS, _NONE = "moe_router,moe_preprocess", "attn,moe_router,moe_preprocess", "none"
_STATIC = "attn,moe"
"""with a fixed capacity of experts each layer is captured whole"""
_WHOLE = ("hybridep", True, "full_iteration")
_PLAIN = ("alltoall", False, _NONE)

Facts = tuple[str, bool, str]
_NARROW, _WIDE, _ANY = "8 bits", "bf16", ""
_RECIPES: dict[tuple[str, str], dict[tuple[str, str], Facts]] = {
    ("DeepSeek", "h100"): {
        ("25.09", _ANY): ("deepep", True, _NONE),
        ("26.02", _ANY): ("hybridep", False, _NONE),
    },
    ("DeepSeek", "b200"): {
        ("25.09", _ANY): _PLAIN,
        ("26.02", _ANY): ("hybridep", False, _NONE),
        ("26.06", _NARROW): ("deepep", True, _LAYERS),
    },
    ("DeepSeek", "b300"): {("26.02", _ANY): ("hybridep", False, _NONE), ("26.06", _ANY): ("hybridep", False, _LAYERS)},
    ("DeepSeek", "gb200"): {
        ("25.09", _ANY): _PLAIN,
        ("25.11", _ANY): ("hybridep", False, _ROUTER),
        ("26.02", _ANY): ("hybridep", False, _LAYERS),
        ("26.06", _NARROW): _WHOLE,
    },
    ("DeepSeek", "gb300"): {
        ("25.11", _ANY): ("hybridep", False, _LAYERS),
        ("26.02", _NARROW): ("hybridep", False, _NONE),
        ("26.06", _NARROW): _WHOLE,
    },
    ("Qwen3_30B", "h100"): {
        ("25.09", _ANY): _PLAIN,
        ("25.11", _NARROW): ("alltoall", True, _NONE),
        ("25.11", _WIDE): ("alltoall", True, _ROUTER),
        ("26.02", _NARROW): ("deepep", True, _NONE),
        ("26.02", _WIDE): ("deepep", True, _ROUTER),
        ("26.04", _NARROW): ("hybridep", False, _NONE),
        ("26.04", _WIDE): ("hybridep", False, _ROUTER),
    },
    ("Qwen3_30B", "b200"): {
        ("25.09", _ANY): ("alltoall", False, _STATIC),
        ("25.11", _ANY): ("alltoall", False, _ROUTER),
        ("26.04", _ANY): ("hybridep", False, _LAYERS),
    },
    ("Qwen3_30B", "b300"): {("26.02", _ANY): ("hybridep", False, _ROUTER), ("26.06", _NARROW): _WHOLE},
    ("Qwen3_30B", "gb200"): {
        ("25.09", _ANY): ("alltoall", False, _STATIC),
        ("25.11", _NARROW): ("hybridep", False, _ROUTER),
        ("25.11", _WIDE): ("hybridep", False, _LAYERS),
        ("26.06", _NARROW): _WHOLE,
    },
    ("Qwen3_30B", "gb300"): {("25.11", _ANY): ("hybridep", False, _ROUTER), ("26.06", _NARROW): _WHOLE},
    ("Qwen3_235B", "h100"): {("25.09", _ANY): _PLAIN, ("25.11", _ANY): ("alltoall", True, _NONE)},
    ("Qwen3_235B", "b200"): {
        ("25.09", _ANY): _PLAIN,
        ("25.11", _ANY): ("alltoall", True, _NONE),
        ("26.02", _ANY): _PLAIN,
        ("26.08", _NARROW): _WHOLE,
    },
    ("Qwen3_235B", "b300"): {
        ("26.02", _ANY): ("alltoall", True, _NONE),
        ("26.04", _ANY): _PLAIN,
        ("26.06", _ANY): ("hybridep", False, _NONE),
        ("26.08", _NARROW): _WHOLE,
    },
    ("Qwen3_235B", "gb200"): {
        ("25.09", _ANY): _PLAIN,
        ("25.11", _ANY): ("hybridep", False, _LAYERS),
        ("26.06", _NARROW): _WHOLE,
    },
    ("Qwen3_235B", "gb300"): {
        ("25.11", _ANY): ("hybridep", False, _ROUTER),
        ("26.02", _NARROW): ("hybridep", False, _LAYERS),
        ("26.04", _ANY): ("hybridep", False, _LAYERS),
        ("26.06", _NARROW): _WHOLE,
    },
    ("GPT OSS", "h100"): {("25.11", _ANY): _PLAIN},
    ("GPT OSS", "b200"): {
        ("25.11", _ANY): _PLAIN,
        ("26.04", _ANY): ("hybridep", False, _NONE),
        ("26.06", _ANY): _PLAIN,
    },
    ("GPT OSS", "b300"): {("25.11", _ANY): ("alltoall", False, _LAYERS), ("26.04", _ANY): ("hybridep", False, _LAYERS)},
    ("GPT OSS", "gb200"): {
        ("25.11", _ANY): _PLAIN,
        ("26.04", _ANY): ("hybridep", True, _NONE),
        ("26.06", _WIDE): ("alltoall", True, _NONE),
        ("26.06", _NARROW): _WHOLE,
    },
    ("GPT OSS", "gb300"): {("25.11", _ANY): ("alltoall", False, _LAYERS), ("26.06", _NARROW): _WHOLE},
}


def recipe(container: str, model: str, gpu: str, *, narrow: bool) -> dict[str, Any]:
    """Columns of a layout. ``container``: year and month; ``narrow``: in 8 bits or fewer. Of a kind of GPU or a model
    without a recipe nothing is stated.
    """
    family = "DeepSeek" if model.startswith("Kimi") else model
    known: Facts = ("alltoall", False, _NONE)
    for (name, kind), dated in _RECIPES.items():
        if kind == gpu and family.startswith(name):
            fitting = [
                one for (date, bits), one in sorted(dated.items()) if date <= container and bits in _bits(narrow)
            ]
            known = fitting[-1] if fitting else next(iter(dated.values()))
    facts = dict(zip(("dispatcher", "ep_overlap", "cuda_graphs"), known, strict=True))
    return facts | _recomputed(family, container, gpu, narrow=narrow)


def _recomputed(family: str, container: str, gpu: str, *, narrow: bool) -> dict[str, Any]:
    """What selective recomputation drops, but for the MLPs of DeepSeek's three dense layers."""
    kept = (gpu, container) == ("gb200", "26.04") or (gpu == "gb300" and container >= "26.06")
    modules = ""
    if family.startswith("DeepSeek") and not kept:
        modules = "moe_act" if gpu == "gb300" and (container == "25.11" or not narrow) else "mla_up_proj"
    if family.startswith("GPT OSS") and gpu in ("h100", "b200", "gb200") and not (narrow and container >= "26.06"):
        modules = "layernorm,moe_act"
    return {"recompute": "selective", "recompute_modules": modules} if modules else {}


def dtype(precision: str, container: str) -> str:
    """The number format that a table's word means, with its recipe: in plain FP8 those of 2024 scale by earlier steps'
    maxima (NVIDIA/NeMo), later ones by each tensor's own (Megatron-Bridge's recipes are named fp8cs).
    """
    if precision in _DTYPES:
        return _DTYPES[precision]
    return "fp8_delayed" if container.startswith("NeMo24") else "fp8_tensorwise"


_DTYPES = {"BF16": "bf16", "NVFP4": "nvfp4", "MXFP8": "mxfp8", "FP8-MX": "mxfp8"}


def _bits(narrow: bool) -> tuple[str, ...]:
    return (_ANY, _NARROW if narrow else _WIDE)
