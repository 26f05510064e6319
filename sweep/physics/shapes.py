"""The shape of a decoder-only transformer and its exact parameter counts.

Every count takes a ``ModelShape`` or anything with the same attributes, numbers or numpy arrays (``shape_columns``),
so that one definition serves one model and a million candidates.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

NORMS = ("rmsnorm", "layernorm")
"""rmsnorm has a weight per channel, layernorm a weight and a bias"""


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """A decoder-only transformer. Sizes are numbers of elements."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {
        "extra": "forbid",
        "strict": True,
    }

    num_layers: int
    hidden_size: int
    num_heads: int
    intermediate_size: int
    """width of the dense MLP"""
    vocab_size: int
    num_kv_heads: int = 0
    """key and value heads (grouped-query attention); 0 on construction: num_heads"""
    head_dim: int = 0
    """width of one head; 0 on construction: hidden_size / num_heads"""
    tied_embeddings: bool = False
    """the output projection is the input embedding"""
    gated_mlp: bool = True
    """three matrices (SwiGLU) rather than two"""
    norm: str = "rmsnorm"
    qk_norm: bool = False
    """norms of head_dim on queries and keys"""
    qkv_bias: bool = False
    attention_output_bias: bool = False
    mlp_bias: bool = False
    learned_positions: int = 0
    """positions with a learned embedding; 0: rotary or none"""
    num_experts: int = 0
    """routed experts per mixture layer; 0: a dense model"""
    experts_per_token: int = 0
    moe_intermediate_size: int = 0
    """width of one expert; 0 on construction: intermediate_size where there are experts"""
    shared_experts: int = 0
    """experts that every token uses, each of moe_intermediate_size"""
    dense_layers: int = 0
    """leading layers of a mixture model that have the dense MLP"""
    kv_rank: int = 0
    """latent attention (DeepSeek-V2, arXiv 2405.04434): width of the latent that keys and values are computed from; 0:
    none. head_dim is that of values, and of queries and keys without rotary positions"""
    q_rank: int = 0
    """width of the latent that queries are computed from; 0: they are computed from the residual path"""
    rope_head_dim: int = 0
    """further width of queries and keys that has rotary positions, in latent attention"""
    window: int = 0
    """positions that a token of the layers with a sliding window sees; 0: no such layer"""
    window_layers: int = 0
    """layers with a sliding window"""
    mtp_layers: int = 0
    """layers of multi-token prediction after the last one (DeepSeek-V3, arXiv 2412.19437): each has a projection of two
    residual paths to one, and computes the output projection and the loss once more"""

    def __post_init__(self) -> None:
        self._derive("num_kv_heads", self.num_heads)
        if self.num_heads:
            self._derive("head_dim", self.hidden_size // self.num_heads)
        if self.num_experts:
            self._derive("moe_intermediate_size", self.intermediate_size)
        if problems := _problems(self):
            raise ValueError("; ".join(problems))

    def _derive(self, name: str, value: int) -> None:
        if not getattr(self, name):
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, values: Any) -> ModelShape:
        """The shape that JSON values state. Raises ValueError for what is none: of another kind, or beyond 63 bits."""
        kinds = {field.name: field.type for field in dataclasses.fields(cls)}
        if not isinstance(values, dict):
            raise ValueError("a model's shape has fields with values")
        for name, value in values.items():
            if type(value).__name__ != kinds.get(name) or (isinstance(value, int) and abs(value) >= 2**63):
                raise ValueError(f"a model's shape has no {str(name)[:40]!r} of the kind {type(value).__name__}")
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"no model's shape: {error}") from None

    def as_dict(self) -> dict[str, Any]:
        """Every field with its value. ``ModelShape(**values)`` is the inverse."""
        return dataclasses.asdict(self)

    def stated(self) -> dict[str, Any]:
        """What a run carries: the fields of FURTHER only where the model has what they describe, so that they change no
        other model's run_id. ``ModelShape(**values)`` is the inverse here, too.
        """
        return {name: value for name, value in self.as_dict().items() if value or name not in FURTHER}


FURTHER = ("kv_rank", "q_rank", "rope_head_dim", "window", "window_layers", "mtp_layers")
"""fields of a shape that are 0 for most models"""


def shape_columns(columns: Mapping[str, Any]) -> SimpleNamespace:
    """Columns of shape fields (arrays or scalars) as an object that the counts below take.

    Made once for columns that cache what is derived from them (``sweep.physics.columns.Numbers``, which needs numpy).
    """
    once = getattr(columns, "once", None)
    found: SimpleNamespace = once(("shape",), lambda: _shape_columns(columns)) if once else _shape_columns(columns)
    return found


def _shape_columns(columns: Mapping[str, Any]) -> SimpleNamespace:
    defaults = {f.name: f.default for f in dataclasses.fields(ModelShape) if f.default is not dataclasses.MISSING}
    names = {f.name for f in dataclasses.fields(ModelShape)}
    return SimpleNamespace(**{**defaults, **{name: columns[name] for name in names if name in columns}})


def input_embedding_parameters(shape: Any) -> Any:
    """The token embedding: vocab_size * hidden_size."""
    return shape.vocab_size * shape.hidden_size


def output_embedding_parameters(shape: Any) -> Any:
    """The output projection's own weights: none where it is tied to the input embedding."""
    return shape.vocab_size * shape.hidden_size * (1 - shape.tied_embeddings)


def embedding_parameters(shape: Any) -> Any:
    """Input, output and learned position embeddings."""
    positions = shape.learned_positions * shape.hidden_size
    return input_embedding_parameters(shape) + output_embedding_parameters(shape) + positions


def attention_matrix_parameters(shape: Any) -> Any:
    """Query, key, value and output matrices of one layer; in latent attention also those to the latents."""
    hidden, values = shape.hidden_size, shape.num_heads * shape.head_dim
    latent = (shape.kv_rank > 0) * 1
    queries = shape.num_heads * (shape.head_dim + shape.rope_head_dim)
    from_latent = (shape.q_rank > 0) * (hidden + queries) * shape.q_rank + (shape.q_rank == 0) * hidden * queries
    keys = hidden * (shape.kv_rank + shape.rope_head_dim) + shape.kv_rank * 2 * values
    plain = hidden * shape.head_dim * 2 * (shape.num_heads + shape.num_kv_heads)
    return latent * (from_latent + keys + hidden * values) + (1 - latent) * plain


def window_share(shape: Any, sequence_length: Any) -> Any:
    """Pairs in a layer with a sliding window over those in a causal one: about w s - w w / 2 of s s / 2."""
    share = shape.window / (sequence_length + (sequence_length == 0))
    return share * (2 - share) * (share < 1) + (share >= 1)


def mlp_matrix_parameters(shape: Any, width: Any) -> Any:
    """The matrices of one MLP of the given width: three where gated, else two."""
    return (2 + shape.gated_mlp) * shape.hidden_size * width


def router_parameters(shape: Any) -> Any:
    """The router of one mixture layer."""
    return shape.hidden_size * shape.num_experts


def moe_layers(shape: Any) -> Any:
    """Layers whose MLP is a mixture of experts."""
    return (shape.num_layers - shape.dense_layers) * (shape.num_experts > 0)


def layer_parameters(shape: Any, *, moe: Any = None, active: bool = False) -> Any:
    """One layer, norms and biases included.

    ``moe``: a mixture layer (by default: where the shape has experts). ``active``: only weights that a token uses.
    """
    is_moe = (shape.num_experts > 0) if moe is None else moe
    experts = (shape.experts_per_token if active else shape.num_experts) + shape.shared_experts
    mixture = experts * _mlp(shape, shape.moe_intermediate_size) + router_parameters(shape)
    mlp = is_moe * mixture + (1 - is_moe) * _mlp(shape, shape.intermediate_size)
    normed = 2 * shape.hidden_size + 2 * shape.head_dim * shape.qk_norm + shape.q_rank + shape.kv_rank
    norms = (1 + (shape.norm == "layernorm")) * normed
    biases = shape.qkv_bias * shape.head_dim * (shape.num_heads + 2 * shape.num_kv_heads)
    biases = biases + shape.attention_output_bias * shape.hidden_size
    return attention_matrix_parameters(shape) + biases + mlp + norms


def total_parameters(shape: Any) -> Any:
    """Every weight of the model, exactly."""
    return _sum_of_layers(shape, active=False) + embedding_parameters(shape) + _last_norm(shape)


def active_parameters(shape: Any) -> Any:
    """The active weights per token: experts_per_token and the shared experts of each mixture layer."""
    return _sum_of_layers(shape, active=True) + embedding_parameters(shape) + _last_norm(shape)


def matmul_parameters(shape: Any) -> Any:
    """Weights of the matrices that one token is multiplied by: layers and output projection.

    No norms, biases or input embedding; a tied output projection counts, since it is multiplied by.
    """
    moe = moe_layers(shape)
    experts = shape.experts_per_token + shape.shared_experts
    mixture = experts * mlp_matrix_parameters(shape, shape.moe_intermediate_size) + router_parameters(shape)
    dense = mlp_matrix_parameters(shape, shape.intermediate_size)
    mlps = moe * mixture + (shape.num_layers - moe) * dense
    attention, output, is_moe = attention_matrix_parameters(shape), input_embedding_parameters(shape), moe > 0
    again = attention + is_moe * mixture + (1 - is_moe) * dense + 2 * shape.hidden_size**2 + output
    return mlps + shape.num_layers * attention + output + shape.mtp_layers * again


def mtp_further_parameters(shape: Any) -> Any:
    """What a layer of multi-token prediction has beyond an ordinary one: the projection, and three norms."""
    return 2 * shape.hidden_size**2 + 3 * _last_norm(shape)


def _sum_of_layers(shape: Any, *, active: bool) -> Any:
    moe = moe_layers(shape)
    dense = (shape.num_layers - moe) * layer_parameters(shape, moe=False)
    further = shape.mtp_layers * (layer_parameters(shape, active=active) + mtp_further_parameters(shape))
    return dense + moe * layer_parameters(shape, moe=True, active=active) + further


def _last_norm(shape: Any) -> Any:
    return (1 + (shape.norm == "layernorm")) * shape.hidden_size


def _mlp(shape: Any, width: Any) -> Any:
    biases = shape.mlp_bias * ((1 + shape.gated_mlp) * width + shape.hidden_size)
    return mlp_matrix_parameters(shape, width) + biases


def _problems(shape: ModelShape) -> list[str]:
    found = [f"{n} must be positive" for n in _POSITIVE if getattr(shape, n) < 1]
    found += [f"{n} must not be negative" for n in _COUNTS if getattr(shape, n) < 0]
    if found:
        return found
    if shape.norm not in NORMS:
        found.append(f"norm is one of {', '.join(NORMS)}, not {shape.norm[:40]!r}")
    if shape.num_heads % shape.num_kv_heads:
        found.append(f"num_heads {shape.num_heads} is not a multiple of num_kv_heads {shape.num_kv_heads}")
    if (shape.q_rank or shape.rope_head_dim) and not shape.kv_rank:
        found.append("q_rank and rope_head_dim need kv_rank")
    if (shape.window > 0) != (shape.window_layers > 0) or shape.window_layers > shape.num_layers:
        found.append(f"window and window_layers (at most {shape.num_layers}) belong together")
    if shape.num_experts and not 1 <= shape.experts_per_token <= shape.num_experts:
        found.append(f"experts_per_token must be 1 to num_experts ({shape.num_experts})")
    if not shape.num_experts and (shape.experts_per_token or shape.shared_experts or shape.dense_layers):
        found.append("experts_per_token, shared_experts and dense_layers need num_experts")
    if shape.dense_layers >= shape.num_layers:
        found.append(f"dense_layers must be under num_layers ({shape.num_layers})")
    return found


_POSITIVE = ("num_layers", "hidden_size", "num_heads", "intermediate_size", "vocab_size", "num_kv_heads", "head_dim")
_COUNTS = tuple(f.name for f in dataclasses.fields(ModelShape) if f.type == "int" and f.name not in _POSITIVE)
