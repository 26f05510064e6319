"""Models known by name.

Sources: the Ultra-Scale Playbook's 1B to 80B are those of nanotron's ``scripts/scaling_benchmarks.py``; the others
are the published configurations of their model cards. The tiny ones are our own, for CPUs and tests.
"""

from __future__ import annotations

from dataclasses import replace

from sweep.physics.shapes import ModelShape


def _llama(layers: int, hidden: int, heads: int, kv: int, width: int, vocab: int, *, tied: bool = False) -> ModelShape:
    return ModelShape(
        num_layers=layers,
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=kv,
        intermediate_size=width,
        vocab_size=vocab,
        tied_embeddings=tied,
    )


def _mixture(base: ModelShape, *, experts: int, per_token: int, width: int, shared: int = 0) -> ModelShape:
    return replace(
        base, num_experts=experts, experts_per_token=per_token, moe_intermediate_size=width, shared_experts=shared
    )


def _qwen3(base: ModelShape) -> ModelShape:
    return replace(base, head_dim=128, qk_norm=True)


def _gpt_oss(base: ModelShape, *, experts: int) -> ModelShape:
    mixture = _mixture(base, experts=experts, per_token=4, width=2880)
    wide = replace(mixture, head_dim=64, qkv_bias=True, attention_output_bias=True, mlp_bias=True)
    return replace(wide, window=128, window_layers=base.num_layers // 2)


def _deepseek(heads: int, vocab: int, *, experts: int, dense: int) -> ModelShape:
    base = _mixture(_llama(61, 7168, heads, heads, 18432, vocab), experts=experts, per_token=8, width=2048, shared=1)
    return replace(base, head_dim=128, dense_layers=dense, kv_rank=512, q_rank=1536, rope_head_dim=64)


def _hybrid(base: ModelShape, *, experts: int, per_token: int, width: int, shared: int) -> ModelShape:
    mixture = _mixture(base, experts=experts, per_token=per_token, width=width, shared=shared)
    return replace(mixture, head_dim=128, gated_mlp=False)


def _gpt3(layers: int, hidden: int, heads: int) -> ModelShape:
    biases = {"qkv_bias": True, "attention_output_bias": True, "mlp_bias": True}
    base = _llama(layers, hidden, heads, heads, 4 * hidden, 51200, tied=True)
    return replace(base, gated_mlp=False, norm="layernorm", learned_positions=2048, **biases)


MODELS: dict[str, ModelShape] = {
    # The playbook's, vocabulary 131,072, as many kv heads as heads except for 70B.
    "1B": _llama(16, 2048, 32, 32, 8192, 131072, tied=True),
    "3B": _llama(28, 3072, 32, 32, 8192, 131072, tied=True),
    "8B": _llama(32, 4096, 32, 32, 14336, 131072),
    "70B": _llama(80, 8192, 64, 8, 28672, 131072),
    "80B": _llama(80, 8192, 64, 64, 28672, 131072),
    "SmolLM3-3B": _llama(36, 2048, 16, 4, 11008, 128256, tied=True),
    "Llama-2-7B": _llama(32, 4096, 32, 32, 11008, 32000),
    "Llama-2-13B": _llama(40, 5120, 40, 40, 13824, 32000),
    "Llama-2-70B": _llama(80, 8192, 64, 8, 28672, 32000),
    "Llama-3-8B": _llama(32, 4096, 32, 8, 14336, 128256),
    "Llama-3-70B": _llama(80, 8192, 64, 8, 28672, 128256),
    "Llama-3.1-8B": _llama(32, 4096, 32, 8, 14336, 128256),
    "Llama-3.1-70B": _llama(80, 8192, 64, 8, 28672, 128256),
    "Llama-3.3-70B": _llama(80, 8192, 64, 8, 28672, 128256),
    "Llama-3.1-405B": _llama(126, 16384, 128, 8, 53248, 128256),
    "Llama-3.2-1B": _llama(16, 2048, 32, 8, 8192, 128256, tied=True),
    "Llama-3.2-3B": _llama(28, 3072, 24, 8, 8192, 128256, tied=True),
    "Mistral-7B": _llama(32, 4096, 32, 8, 14336, 32768),
    "Mixtral-8x7B": _mixture(_llama(32, 4096, 32, 8, 14336, 32000), experts=8, per_token=2, width=14336),
    "Mixtral-8x22B": _mixture(_llama(56, 6144, 48, 8, 16384, 32768), experts=8, per_token=2, width=16384),
    # config.json of Qwen's, Google's, OpenAI's, DeepSeek's and Moonshot's repositories on Hugging Face.
    "Qwen3-0.6B": _qwen3(_llama(28, 1024, 16, 8, 3072, 151936, tied=True)),
    "Qwen3-8B": _qwen3(_llama(36, 4096, 32, 8, 12288, 151936)),
    "Qwen3-32B": _qwen3(_llama(64, 5120, 64, 8, 25600, 151936)),
    "Qwen3-30B-A3B": _qwen3(_mixture(_llama(48, 2048, 32, 4, 6144, 151936), experts=128, per_token=8, width=768)),
    "Qwen3-235B-A22B": _qwen3(_mixture(_llama(94, 4096, 64, 4, 12288, 151936), experts=128, per_token=8, width=1536)),
    "Gemma-2B": replace(_llama(18, 2048, 8, 1, 16384, 256000, tied=True), head_dim=256),
    "Gemma-7B": replace(_llama(28, 3072, 16, 16, 24576, 256000, tied=True), head_dim=256),
    # Without the attention sinks and the router's biases: 96 and 192 parameters per layer.
    "GPT-OSS-20B": _gpt_oss(_llama(24, 2880, 64, 8, 2880, 201088), experts=32),
    "GPT-OSS-120B": _gpt_oss(_llama(36, 2880, 64, 8, 2880, 201088), experts=128),
    # Without its layer of multi-token prediction (mtp_layers: 1), as its 671 billion parameters are counted.
    "DeepSeek-V3": _deepseek(128, 129280, experts=256, dense=3),
    "Kimi-K2": _deepseek(64, 163840, experts=384, dense=1),
    # Mamba and mixture layers alternate: a pair is a layer here, the Mamba layer's matrices count as shared experts,
    # and the few attention layers are spread over all. Layers and widths: nemotron_h_provider.py of Megatron-Bridge.
    # The experts of Super work on a latent of 1,024: as many parameters at the full width are 672 wide.
    "Nemotron-3-Nano": _hybrid(_llama(23, 2688, 8, 2, 1856, 131072), experts=128, per_token=6, width=1856, shared=6),
    "Nemotron-3-Super": _hybrid(_llama(40, 4096, 8, 2, 2688, 131072), experts=512, per_token=22, width=672, shared=29),
    # Dense models of NVIDIA's tables for NeMo: two matrices per MLP.
    "GPT3-5B": _gpt3(24, 4096, 32),
    "GPT3-20B": _gpt3(44, 6144, 48),
    "GPT3-175B": _gpt3(96, 12288, 96),
    "Nemotron-8B": replace(_llama(32, 4096, 32, 32, 16384, 256000), gated_mlp=False, norm="layernorm"),
    "Nemotron-15B": replace(_llama(32, 6144, 48, 8, 24576, 256000), gated_mlp=False, norm="layernorm"),
    "Nemotron-22B": replace(_llama(40, 6144, 48, 48, 24576, 256000), gated_mlp=False, norm="layernorm"),
    "Nemotron-340B": replace(_llama(96, 18432, 96, 8, 73728, 256000), gated_mlp=False, norm="layernorm"),
    # Untied, so that a pipeline can cut them; heads divisible by 4 (or 6), kv heads by 2 (or 3), layers by 4 (or 6).
    "tiny-1M": _llama(4, 128, 4, 2, 384, 1024),
    "tiny-4M": _llama(8, 192, 4, 2, 512, 2048),
    "tiny-16M": _llama(8, 384, 8, 4, 1024, 4096),
    "tiny-6heads": _llama(6, 192, 6, 3, 512, 1024),
    "tiny-moe": _mixture(_llama(4, 128, 4, 2, 384, 1024), experts=8, per_token=2, width=192, shared=1),
}
"""name -> shape"""


def catalogued(name: str) -> str | None:
    """The model that a usual spelling means: meta-llama/Meta-Llama-3-8B-Instruct is Llama-3-8B. None if unknown."""
    return name if name in MODELS else _SPELT.get(_plain(name))


def _plain(name: str) -> str:
    """Without the owner, the kind of fine-tuning, the case and punctuation."""
    own = name.lower().rpartition("/")[2].removeprefix("meta-")
    while own.endswith(("-hf", "-instruct", "-base", "-chat", "-it")):
        own = own.rpartition("-")[0]
    return "".join(filter(str.isalnum, own))


_SPELT = {_plain(name): name for name in MODELS}
