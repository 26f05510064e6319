"""Expected rates against published measurements of healthy machines, and against floors that no machine reaches."""

import pytest

from sweep.checks import expectation
from sweep.checks.expectation import adapters_ceiling, all_reduce
from sweep.physics.hardware import GPUS

MIB, GIB = 2**20, 2**30

NODE = [  # kind, size, GB/s; ML Engineering, NVIDIA dgxc README of NCCL, AzureHPC NHC; Azure ND MI300X v5
    ("h100", 64 * MIB, 362),
    ("h100", 128 * MIB, 400),
    ("h100", GIB, 466),
    ("h100", 4 * GIB, 477),
    ("h100", 16 * GIB, 480),
    ("h200", 8 * GIB, 473),
    ("h200", 16 * GIB, 481),
    ("b200", 16 * GIB, 838),
    ("a100", 8 * GIB, 235),
    ("mi300x", 8 * GIB, 317),
]


@pytest.mark.parametrize(("kind", "size", "published"), NODE)
def test_the_all_reduce_of_a_node_is_within_a_tenth_of_what_was_published(kind, size, published):
    found = all_reduce(kind, 1, 8, size)
    assert found.expected / 1e9 == pytest.approx(published, rel=0.10)
    assert published * 1e9 < found.bound
    assert published * 1e9 > found.floor


@pytest.mark.parametrize(("found", "published"), [
    (expectation.pair_of_gpus("h200"), 396e9),
    (expectation.pair_of_gpus("a100"), 236.5e9),
    (expectation.pair_of_gpus("mi300x"), 50e9),  # ScalarLM, memcpy peer; 48 in ROCm/rccl issue 1210
    (expectation.adapter("h100"), 47e9),
    (all_reduce("h100", 2, 8, 4e9), 339e9),  # RoCE
])  # fmt: skip
def test_other_links_are_within_a_tenth_of_what_was_published(found, published):
    assert found.expected == pytest.approx(published, rel=0.10)
    assert found.floor < published < found.bound


@pytest.mark.parametrize(
    ("kind", "dtype", "published"),
    [
        ("a100", "bf16", 271.2),
        ("h100", "bf16", 794.5),
        ("b200", "bf16", 1745),
        ("a100", "fp16", 271.2),
        ("mi300x", "fp8", 1159.2),
        ("v100", "fp16", 83 / 0.91 * 125 / 112),
    ],
)
def test_a_short_matmul_may_have_four_fifths_of_the_best_and_the_best_is_possible(kind, dtype, published):
    found = expectation.matmul(kind, dtype)
    assert found.expected == pytest.approx(0.8 * published * 1e12, rel=0.03)
    assert published * 1e12 < found.bound


@pytest.mark.parametrize(
    ("nodes", "published"), [(2, 750), (3, 575), (4, 517), (6, 470), (8, 450), (16, 423), (64, 406)]
)
def test_the_ceiling_of_the_adapters_for_each_number_of_nodes(nodes, published):
    assert adapters_ceiling(400e9, nodes, 8) / 1e9 == pytest.approx(published, abs=0.6)


def test_with_two_nodes_the_link_binds_and_with_many_the_adapters():
    two, many = (all_reduce("h100", nodes, 8, 16 * GIB) for nodes in (2, 64))
    assert two.expected == pytest.approx(0.71 * 450e9, rel=0.01)
    assert many.expected == pytest.approx(0.71 * adapters_ceiling(400e9, 64, 8), rel=0.01)
    assert many.bound == pytest.approx(adapters_ceiling(400e9, 64, 8))
    assert "NVLink 450 GB/s" in many.basis
    assert "64 nodes 406 GB/s" in many.basis


def test_published_floors_that_no_machine_reaches_are_above_the_bound():
    """aws-samples asks for 800 GB/s on p5 (H100, EFA) and 300 on p4d (A100, four adapters of 100 Gb/s)."""
    assert all_reduce("h100", 1, 8, 16 * GIB).bound <= 800e9
    assert all_reduce("h100", 2, 8, 16 * GIB).bound <= 800e9
    assert 228e9 < all_reduce("a100", 1, 8, 16 * GIB).bound <= 300e9


def test_few_gpus_are_checked_as_a_ring():
    four = all_reduce("h200", 1, 4, 16 * GIB)
    assert four.expected == pytest.approx(0.78 * 450e9, rel=0.01)


def test_nothing_is_expected_of_what_is_not_known():
    assert all_reduce("cpu", 2, 1, GIB).expected is None
    assert expectation.matmul("cpu", "fp32").bound is None
    assert all_reduce("l40s", 2, 8, GIB).expected is None, "no network is known of it"
    assert GPUS["l40s"].network_bytes_per_s is None
