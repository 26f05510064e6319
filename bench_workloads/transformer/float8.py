"""Linear layers in 8 bits, by torchao's float8 training: products of scaled inputs, weights and gradients.

On a CPU the products are emulated: scaled and rounded to 8 bits, multiplied in the dtype before. Not converted are the
embedding, the output projection, routers, experts' grouped products, and widths that are no multiples of 16.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import nn

from bench_workloads.transformer.mlp import Experts
from bench_workloads.transformer.rules import FP8_RECIPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_workloads.transformer.model import Decoder


def apply(part: Decoder, dtype: str, *, gather: bool, emulate: bool) -> None:
    """Convert a stage's layers, in place. ``gather``: ZeRO gathers weights in 8 bits. ImportError without torchao."""
    if dtype not in FP8_RECIPES:
        return
    float8 = _torchao(dtype)
    config = float8.Float8LinearConfig.from_recipe_name(dtype.removeprefix("fp8_"))
    float8.convert_to_float8_training(
        part.layers,
        module_filter_fn=_fits,
        config=replace(config, emulate=emulate, enable_fsdp_float8_all_gather=gather),
    )


def scale_gathered(parts: Sequence[Decoder]) -> None:
    """Make the scales of all weights that are gathered next, by one reduction instead of one for each."""
    for part in parts:
        _torchao("fp8").precompute_float8_dynamic_scale_for_fsdp(part)


def observed(parts: Sequence[Decoder]) -> dict[str, Any]:
    """Recipe and gathers of the live layers, and the kinds of matrices that are not among them; empty without any."""
    modules = [(name, module) for part in parts for name, module in part.named_modules()]
    converted = {name: module for name, module in modules if type(module).__name__ == "Float8Linear"}
    if not converted:
        return {}
    float8 = _torchao("fp8")
    plain = {replace(m.config, emulate=False, enable_fsdp_float8_all_gather=False) for m in converted.values()}
    of_recipe = {float8.Float8LinearConfig.from_recipe_name(name.removeprefix("fp8_")): name for name in FP8_RECIPES}
    others = {n.split(".")[-1] for n, m in modules if isinstance(m, (nn.Linear, Experts)) and n not in converted}
    return {
        "dtype": ",".join(sorted(of_recipe.get(config, "fp8") for config in plain)),
        "fp8_params": all(m.config.enable_fsdp_float8_all_gather for m in converted.values()),
        "not_in_8_bits": ",".join(sorted(others)),
    }


def _fits(module: nn.Module, name: str) -> bool:
    """Both widths must be multiples of 16 (torch._scaled_mm)."""
    return not name.endswith("router") and all(width % 16 == 0 for width in module.weight.shape)


def _torchao(dtype: str) -> Any:
    try:
        from torchao import float8
    except ImportError as error:
        raise ImportError(
            f"dtype: {dtype} needs torchao in the ranks' environment: pip install 'trainsweep[fp8]', or leave that "
            f"dtype out of the grid ({error})"
        ) from error
    return float8
