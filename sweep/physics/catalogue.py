"""Models known by name.

Sources: the Ultra-Scale Playbook's 1B to 80B are those of nanotron's ``scripts/scaling_benchmarks.py``; the others
are the published configurations of their model cards. The tiny ones are our own, for CPUs and tests.
"""

from __future__ import annotations

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
    values = base.as_dict() | {
        "num_experts": experts,
        "experts_per_token": per_token,
        "moe_intermediate_size": width,
        "shared_experts": shared,
    }
    return ModelShape(**values)


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
    "Llama-3.1-405B": _llama(126, 16384, 128, 8, 53248, 128256),
    "Llama-3.2-1B": _llama(16, 2048, 32, 8, 8192, 128256, tied=True),
    "Llama-3.2-3B": _llama(28, 3072, 24, 8, 8192, 128256, tied=True),
    "Mixtral-8x7B": _mixture(_llama(32, 4096, 32, 8, 14336, 32000), experts=8, per_token=2, width=14336),
    "Mixtral-8x22B": _mixture(_llama(56, 6144, 48, 8, 16384, 32768), experts=8, per_token=2, width=16384),
    # Untied, so that a pipeline can cut them; heads divisible by 4 (or 6), kv heads by 2 (or 3), layers by 4 (or 6).
    "tiny-1M": _llama(4, 128, 4, 2, 384, 1024),
    "tiny-4M": _llama(8, 192, 4, 2, 512, 2048),
    "tiny-16M": _llama(8, 384, 8, 4, 1024, 4096),
    "tiny-6heads": _llama(6, 192, 6, 3, 512, 1024),
    "tiny-moe": _mixture(_llama(4, 128, 4, 2, 384, 1024), experts=8, per_token=2, width=192, shared=1),
}
"""name -> shape"""
