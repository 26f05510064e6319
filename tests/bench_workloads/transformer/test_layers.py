"""Attention by groups and by latents, experts and their routing, in one process: loops, and papers' equations."""

import math

import pytest

torch = pytest.importorskip("torch")

from bench_workloads.transformer import attention  # noqa: E402
from bench_workloads.transformer.attention import (  # noqa: E402
    LatentAttention,
    attention_by_head,
    causal_attention,
    rope_table,
)
from bench_workloads.transformer.mlp import by_loop, grouped, product_on  # noqa: E402
from bench_workloads.transformer.model import Decoder, experts_of, mean_loss  # noqa: E402
from bench_workloads.transformer.output import MTP_LOSS_FACTOR, over_depths  # noqa: E402
from sweep.physics.shapes import ModelShape  # noqa: E402
from tests.support.ranks.harness import FURTHER, LATENT  # noqa: E402

CPU = torch.device("cpu")


def test_repeated_keys_give_the_same_attention_and_gradients():
    generator = torch.Generator().manual_seed(1)
    made = [torch.randn(2, heads, 16, 8, generator=generator) for heads in (6, 2, 2)]
    found = []
    for core in (causal_attention, attention_by_head):
        inputs = [x.clone().requires_grad_() for x in made]
        out = core(*inputs)
        out.square().sum().backward()
        found.append([out, *(x.grad for x in inputs)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("supported", [True, False])
def test_torch_is_asked_whether_its_efficient_kernel_takes_groups(monkeypatch, supported):
    """All others do, in every torch."""
    asked = []

    def answer(params, debug=False):
        asked.append((params.query.shape[1], params.key.shape[1], params.is_causal, params.enable_gqa))
        return supported

    monkeypatch.setattr(torch.backends.cuda, "can_use_efficient_attention", answer)
    kernels = ("efficient", "auto", "flash", "fa3", "cudnn", "math")
    assert [attention.takes_groups(kernel, CPU, torch.bfloat16) for kernel in kernels] == [supported, *[True] * 5]
    assert asked == [(2, 1, True, True)]


@pytest.mark.parametrize("counts", [(3, 0, 5, 2), (0, 0, 10, 0), (10, 0, 0, 0), (2, 3, 4, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_grouped_equals_the_loop_forward_and_backward(counts, dtype):
    generator = torch.Generator().manual_seed(1)
    found = []
    made = [torch.randn(size, generator=generator).to(dtype) for size in ((10, 16), (4, 16, 8), (10, 8))]
    for product in (by_loop, grouped):
        tokens, weights = (x.clone().requires_grad_() for x in made[:2])
        out = product(tokens, weights, torch.tensor(counts))
        out.backward(made[2])
        found.append((out, tokens.grad, weights.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6 if dtype is torch.float32 else 1e-2, atol=1e-6)


def test_where_torch_has_no_grouped_product_the_loop_is_taken(monkeypatch):
    """As in a torch without the operator, and on a GPU before compute capability 8.0."""
    assert product_on("cpu", torch.bfloat16, 64, 32) is grouped

    def refuse(*_args, **_kwargs):
        raise RuntimeError("torch._grouped_mm is only supported on CUDA devices with compute capability >= 8.0")

    for change in (
        lambda: monkeypatch.delattr(torch, "_grouped_mm"),
        lambda: monkeypatch.setattr(torch, "_grouped_mm", refuse, raising=False),
    ):
        product_on.cache_clear()
        change()
        assert product_on("cpu", torch.bfloat16, 64, 32) is by_loop
    product_on.cache_clear()


@pytest.mark.parametrize(("width", "expected"), [(32, grouped), (40, grouped), (44, by_loop), (33, by_loop)])
def test_experts_whose_rows_are_no_multiple_of_16_bytes_are_multiplied_one_by_one(width, expected):
    """8 numbers of bf16: torch's own check, which would end a run in its first step."""
    assert product_on("cpu", torch.bfloat16, 64, width) is expected
    tokens, weights = torch.zeros(3, 64, dtype=torch.bfloat16), torch.zeros(2, 64, width, dtype=torch.bfloat16)
    assert product_on("cpu", torch.bfloat16, 64, width)(tokens, weights, torch.tensor([1, 2])).shape == (3, width)


def shares(routing: str) -> list[float]:
    chosen = experts_of(routing, 3, 8192, 16, 2)
    assert (chosen[:, 0] != chosen[:, 1]).all()
    counts = torch.bincount(chosen.flatten(), minlength=16)
    return sorted((counts / counts.sum()).tolist(), reverse=True)


def test_stated_routing_is_balanced_or_skewed_by_zipfs_shares_of_the_first_choice():
    assert shares("balanced") == [1 / 16] * 16
    assert shares("skewed:0")[0] < 0.07 < shares("skewed:0.5")[0] < shares("skewed:1.2")[0]
    first = torch.bincount(experts_of("skewed:1.2", 3, 65536, 16, 1).flatten(), minlength=16)
    wanted = torch.arange(1, 17).float() ** -1.2
    found = first.sort(descending=True).values / first.sum()
    torch.testing.assert_close(found, wanted / wanted.sum(), rtol=0.05, atol=0.005)


def test_each_layer_has_its_own_favourites_and_a_run_is_the_same_again():
    hot = [int(experts_of("skewed:1.2", layer, 4096, 64, 1).flatten().mode().values) for layer in range(4)]
    assert len(set(hot)) > 1
    assert torch.equal(experts_of("skewed:1", 1, 64, 8, 2), experts_of("skewed:1", 1, 64, 8, 2))
    assert experts_of("natural", 0, 4, 2, 1) is None


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
