"""Stated routing: the same tokens to the same experts in every layout, balanced or by a Zipf exponent."""

import pytest

torch = pytest.importorskip("torch")

from bench_workloads.transformer.model import experts_of  # noqa: E402


def shares(routing: str) -> list[float]:
    chosen = experts_of(routing, 3, 8192, 16, 2)
    assert (chosen[:, 0] != chosen[:, 1]).all()
    counts = torch.bincount(chosen.flatten(), minlength=16)
    return sorted((counts / counts.sum()).tolist(), reverse=True)


def test_balanced_gives_each_expert_as_many_tokens():
    assert shares("balanced") == [1 / 16] * 16


def test_skew_grows_with_the_exponent_to_zipfs_shares_of_the_first_choice():
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
