"""Latent attention and multi-token prediction against their papers' equations, and their parameters by physics."""

import math

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from bench_workloads.transformer.attention import LatentAttention, rope_table  # noqa: E402
from bench_workloads.transformer.model import Decoder, mean_loss  # noqa: E402
from bench_workloads.transformer.output import MTP_LOSS_FACTOR, over_depths  # noqa: E402
from sweep.physics.shapes import ModelShape  # noqa: E402
from tests.support.ranks.harness import (  # noqa: E402
    FURTHER,
    LATENT,
    a_run,
)
from tests.support.transformer.broken import broken_rules  # noqa: E402
from tests.support.transformer.cases import case  # noqa: E402


def turned(x, position, width):
    """Rotary positions of one vector: pairs (i, i + width / 2) turn by position * theta ** (-2 i / width)."""
    out = x.clone()
    for i in range(width // 2):
        angle = position * 500_000.0 ** (-2 * i / width)
        first, second = x[i], x[i + width // 2]
        out[i] = first * math.cos(angle) - second * math.sin(angle)
        out[i + width // 2] = second * math.cos(angle) + first * math.sin(angle)
    return out


@pytest.mark.parametrize("shape", [LATENT, LATENT | {"q_rank": 0}], ids=["q_rank", "no q_rank"])
def test_each_head_attends_as_in_the_papers_equations(shape):
    """arXiv 2405.04434, equations 37 to 47, position by position and head by head."""
    torch.manual_seed(1)
    shape = ModelShape(**shape)
    d, r, length = shape.head_dim, shape.rope_head_dim, 5
    layer = LatentAttention(shape).double()
    layer.rope = tuple(x.double() for x in rope_table(torch.arange(length), r))
    x = torch.randn(1, length, shape.hidden_size, dtype=torch.float64)
    found = layer(x)[0]

    narrow = layer.q_norm(layer.q_down(x[0])) if shape.q_rank else x[0]
    queries = (narrow @ layer.q_up.weight.T).view(length, shape.num_heads, d + r)
    down = x[0] @ layer.kv_down.weight.T
    up = (layer.kv_norm(down[:, : shape.kv_rank]) @ layer.kv_up.weight.T).view(length, shape.num_heads, 2 * d)
    shared = torch.stack([turned(down[t, shape.kv_rank :], t, r) for t in range(length)])
    for t in range(length):
        heads = []
        for h in range(shape.num_heads):
            query = torch.cat((queries[t, h, :d], turned(queries[t, h, d:], t, r)))
            scores = [query @ torch.cat((up[j, h, :d], shared[j])) / math.sqrt(d + r) for j in range(t + 1)]
            heads.append(torch.stack(scores).softmax(0) @ up[: t + 1, h, d:])
        assert torch.allclose(found[t], layer.wo(torch.cat(heads)), atol=1e-5)  # positions are turned in fp32


def test_further_tokens_are_predicted_from_the_layer_before_and_the_next_embedding():
    """arXiv 2412.19437, equations 21 to 25, by calling the parts one by one."""
    torch.manual_seed(1)
    shape = ModelShape(**FURTHER)
    model = Decoder(shape, range(shape.num_layers))
    model.set_positions(torch.arange(6))
    sequence = torch.randint(shape.vocab_size, (2, 8))
    tokens = torch.stack((sequence[:, :6], sequence[:, 1:7]), dim=2)
    outputs = model(tokens)
    hidden = model.embedding(sequence[:, :6])
    *layers, last = model.blocks
    for layer in layers:
        hidden = layer(hidden)
    both = torch.cat((last.hidden_norm(hidden), last.token_norm(model.embedding(sequence[:, 1:7]))), dim=-1)
    further = last.projection(both)
    further = further + last.attention(last.attention_norm(further))
    further = last.last_norm(further + last.mlp(last.mlp_norm(further)))
    assert torch.allclose(outputs[0], model.output(model.norm(hidden)), atol=1e-6)
    assert torch.allclose(outputs[1], model.output(further), atol=1e-6)
    targets = torch.stack((sequence[:, 1:7], sequence[:, 2:8]), dim=2)
    first, second = mean_loss(outputs[0], targets[..., 0]), mean_loss(outputs[1], targets[..., 1])
    assert torch.isclose(over_depths(mean_loss)(outputs, targets), first + MTP_LOSS_FACTOR * second)


@pytest.mark.parametrize(
    ("rule", "words", "shape", "params"),
    [
        ("prediction_by_pp", "pp=2", FURTHER, {}),
        ("latent_kernel", "dp=1", LATENT, {"attention": "flash"}),
        ("latent_kernel", "dp=1", LATENT, {"attention": "fa3"}),
        ("rope_head_dim", "dp=1", LATENT | {"rope_head_dim": 0}, {}),
        ("rope_head_dim", "dp=1", LATENT | {"rope_head_dim": 7}, {}),
        ("latent_extras", "dp=1", LATENT | {"qk_norm": True}, {}),
        ("latent_extras", "dp=1", LATENT | {"qkv_bias": True}, {}),
        ("window", "dp=1", LATENT | {"window": 16, "window_layers": 2}, {}),
    ],
)
def test_what_is_not_built_is_rejected(rule, words, shape, params):
    assert broken_rules(a_run(case(words).layout, shape=shape, params=params)) == [rule]
