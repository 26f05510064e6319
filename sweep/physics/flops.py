"""FLOPs per token by explicit, named conventions, and what follows from them: MFU and HFU.

Only figures of one convention may be compared. 1 multiply-add = 2 FLOP; training = forward + backward = 3 forwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sweep.physics import shapes


@dataclass(frozen=True, kw_only=True)
class FlopsConvention:
    """What a trainer counts as a model's FLOPs."""

    name: str
    weights: str
    """"all": every parameter active for a token; "no_input_embedding": all but the token embedding (which counts
    once where it is also the output projection); "matmul": only matrices that a token is multiplied by; "stated": the
    size that the source states for the model, every parameter where it states none"""
    attention: str = "full"
    """"full": every token attends to all s positions; "causal": to half of them; "none": not counted"""
    recomputed_output: bool = False
    """full recomputation is assumed to repeat the output projection too (HFU = 4/3 MFU)"""
    selective_attention_flops: float = 4.0
    """FLOPs per (layer, attention channel, position) that selective recomputation adds, with full attention"""
    source: str = ""


CONVENTIONS: dict[str, FlopsConvention] = {
    c.name: c
    for c in (
        FlopsConvention(
            name="matmul", weights="matmul", source="every matrix multiplication, full attention; 2104.04473 eq. 3"
        ),
        FlopsConvention(
            name="matmul-causal", weights="matmul", attention="causal", source="as matmul, the causal half of attention"
        ),
        FlopsConvention(
            name="playbook",
            weights="all",
            recomputed_output=True,
            source="Ultra-Scale Playbook: 6 N + 12 L h s, N with embeddings",
        ),
        FlopsConvention(
            name="megatron",
            weights="matmul",
            selective_attention_flops=12.0,
            source="arXiv 2104.04473 sec. 5.1 eq. 3; hardware FLOPs of selective recomputation as printed in "
            "arXiv 2205.05198 eq. 9 (s/3h)",
        ),
        FlopsConvention(
            name="llm-foundry",
            weights="all",
            recomputed_output=True,
            source="mosaicml/llm-foundry scripts/train/benchmarking: 6 N + 12 L d T, HFU = 4/3 MFU with checkpoints",
        ),
        FlopsConvention(name="nemo", weights="matmul", source="NVIDIA NeMo 24.x: full attention, GQA, gated MLP"),
        FlopsConvention(
            name="megatron-bridge",
            weights="matmul",
            attention="causal",
            source="NVIDIA Megatron-Bridge 25.09 and later: causal attention",
        ),
        FlopsConvention(
            name="torchtitan",
            weights="no_input_embedding",
            source="pytorch/torchtitan since 2024-08: 6 N + 12 L h s, N without the input embedding",
        ),
        FlopsConvention(
            name="torchtitan-2024-04",
            weights="all",
            source="pytorch/torchtitan 2024-04: 6 N + 12 L h s, N with the input embedding",
        ),
        FlopsConvention(
            name="bigscience-v100",
            weights="stated",
            attention="none",
            recomputed_output=True,
            source="bigscience-workshop/bigscience, tables of V100 runs: 8 s size batch / (t GPUs), four passes "
            "(forward, recomputation, backward of two), size in 10^9 as the model is called, attention not counted",
        ),
    )
}
"""name -> convention"""

DEFAULT_CONVENTION = CONVENTIONS["matmul-causal"]
"""The convention of our own records"""


def attention_forward_flops_per_token(shape: Any, sequence_length: Any, attention: str) -> Any:
    """Scores and weighted sum over all layers: 4 L a d s per token where every position is seen (2104.04473).

    Layers with a sliding window count what it lets a token see; of latent attention scores are wider than values.
    """
    seen = {"full": 1.0, "causal": 0.5, "none": 0.0}[attention]
    windowed = shape.window_layers * shapes.window_share(shape, sequence_length)
    layers = shape.num_layers + shape.mtp_layers - shape.window_layers + windowed
    per_pair = shape.num_heads * (4 * shape.head_dim + 2 * shape.rope_head_dim)
    return seen * layers * per_pair * sequence_length


def counted_parameters(shape: Any, convention: FlopsConvention, stated: Any = None) -> Any:
    """The parameters that the convention multiplies by 6. ``stated``: the size that a source gives its model."""
    if convention.weights == "stated" and stated is not None:
        return stated
    if convention.weights == "matmul":
        return shapes.matmul_parameters(shape)
    every = shapes.active_parameters(shape)
    if convention.weights in ("all", "stated"):
        return every
    return every - shapes.input_embedding_parameters(shape) * (1 - shape.tied_embeddings)


def model_flops_per_token(
    shape: Any,
    sequence_length: Any,
    convention: FlopsConvention = DEFAULT_CONVENTION,
    *,
    frozen_weights: bool = False,
    stated: Any = None,
) -> Any:
    """FLOPs that training on one token needs, whatever is recomputed: 6 N plus three times the forward attention.

    ``frozen_weights``: only adapters are trained (LoRA, arXiv 2106.09685). The weights get no gradient, so that of the
    backward's two products with each only the gradient of its input is left: 4 N. The adapters' own, a hundredth or
    less, are not counted, nor does NVIDIA's NeMo. Attention has no weights and is as before.
    """
    attention = attention_forward_flops_per_token(shape, sequence_length, convention.attention)
    per_parameter = 4 if frozen_weights else 6
    return per_parameter * counted_parameters(shape, convention, stated) + 3 * attention


def hardware_flops_per_token(
    shape: Any,
    sequence_length: Any,
    recompute: str,
    convention: FlopsConvention = DEFAULT_CONVENTION,
    *,
    frozen_weights: bool = False,
    stated: Any = None,
    share: float = 1.0,
) -> Any:
    """FLOPs that are executed per token. ``recompute``: none, selective (attention core) or full (whole layers), of a
    ``share`` of the layers.
    """
    model = model_flops_per_token(shape, sequence_length, convention, frozen_weights=frozen_weights, stated=stated)
    attention = attention_forward_flops_per_token(shape, sequence_length, convention.attention)
    if recompute == "none":
        return model
    if recompute == "selective":
        return model + share * attention * (convention.selective_attention_flops / 4)
    if recompute != "full":
        raise ValueError(f"recompute is none, selective or full, not {recompute!r}")
    counted = counted_parameters(shape, convention, stated)
    if convention.recomputed_output:
        return model + share * (2 * counted + attention)
    return model + share * (2 * (counted - shapes.input_embedding_parameters(shape)) + attention)


def utilisation(tokens_per_second_per_gpu: Any, flops_per_token: Any, peak_flops: float | None) -> Any:
    """MFU (with model FLOPs) or HFU (with hardware FLOPs), as a fraction. None if the peak FLOP/s are unknown."""
    if peak_flops is None or tokens_per_second_per_gpu is None:
        return None
    return tokens_per_second_per_gpu * flops_per_token / peak_flops
