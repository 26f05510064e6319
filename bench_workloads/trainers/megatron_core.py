"""What Megatron-LM and Megatron-Bridge share: a run's axes as fields of Megatron Core, what Core refuses, what it prints.

Fields of `transformer/transformer_config.py` and `model_parallel_config.py` of megatron-core 0.16.1, and of main of August
2026 (d98e8a6) where 0.16 lacks them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sweep.contract import Rule, Run, Scalar

DTYPES: dict[str, dict[str, Scalar]] = {
    "bf16": {},
    "fp16": {},
    "fp32": {},
    "fp8_delayed": {"fp8": "hybrid", "fp8_recipe": "delayed"},
    "fp8_tensorwise": {"fp8": "hybrid", "fp8_recipe": "tensorwise"},
    "fp8_blockwise": {"fp8": "e4m3", "fp8_recipe": "blockwise"},
    "mxfp8": {"fp8": "e4m3", "fp8_recipe": "mxfp8"},
    "nvfp4": {"fp4": "e2m1", "fp4_recipe": "nvfp4"},
}
"""formats as Megatron-Bridge pairs them with recipes (`training/mixed_precision.py`); blockwise as `moe/README.md` has it"""
DISPATCHERS: dict[str, dict[str, Scalar]] = {
    "allgather": {"moe_token_dispatcher_type": "allgather"},
    "alltoall": {"moe_token_dispatcher_type": "alltoall"},
    "deepep": {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "deepep"},
    "hybridep": {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "hybridep"},
}
