"""Kernels that take no grouped queries: keys and values are repeated for each head."""

import pytest

torch = pytest.importorskip("torch")

from bench_workloads.transformer import attention  # noqa: E402
from bench_workloads.transformer.attention import attention_by_head, causal_attention  # noqa: E402

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
    asked = []

    def answer(params, debug=False):
        asked.append((params.query.shape[1], params.key.shape[1], params.is_causal, params.enable_gqa))
        return supported

    monkeypatch.setattr(torch.backends.cuda, "can_use_efficient_attention", answer)
    assert attention.takes_groups("efficient", CPU, torch.bfloat16) is supported
    assert asked == [(2, 1, True, True)]


@pytest.mark.parametrize("kernel", ["auto", "flash", "fa3", "cudnn", "math"])
def test_other_kernels_take_groups_in_every_torch(kernel):
    assert attention.takes_groups(kernel, CPU, torch.bfloat16)
