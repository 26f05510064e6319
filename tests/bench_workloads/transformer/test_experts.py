"""The grouped product of experts equals the loop, also with experts without tokens; and its absence is noticed."""

import pytest

torch = pytest.importorskip("torch")

from bench_workloads.transformer.mlp import by_loop, grouped, product_on  # noqa: E402


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
