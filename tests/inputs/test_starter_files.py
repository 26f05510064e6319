"""The first grid that `sweep init` writes: how wide and how large it is, by the facts of the site."""

import pytest
import yaml

from sweep.inputs.starter_files import SEQUENCES, WIDEST, grid_text


def first_grid(**facts):
    return yaml.safe_load(grid_text({"gpu": "h100", "gpus_per_node": 8} | facts))


@pytest.mark.parametrize(
    ("max_nodes", "nodes"), [(1, [1]), (2, [1, 2]), (3, [1, 2]), (4, [1, 2, 4]), (10 * WIDEST, None)]
)
def test_node_counts_are_powers_of_two_that_the_cluster_has(max_nodes, nodes):
    found = first_grid(max_nodes=max_nodes)["nodes"]
    assert found == nodes or (nodes is None and found[-1] <= WIDEST < 2 * found[-1])


def test_without_a_known_size_of_the_cluster_one_node_is_asked_for():
    assert first_grid()["nodes"] == [1]


@pytest.mark.parametrize(
    ("gpu", "gpus_per_node", "model"),
    [
        ("h100", 8, "Llama-3-8B"),
        ("h100", 4, "Llama-3-8B"),
        ("h100", 1, "Llama-3.2-1B"),  # its states alone need more than one GPU
        ("l4", 16, "Llama-3.2-1B"),  # enough in the node, too little in each GPU
        ("cpu", 8, "tiny-1M"),
    ],
)
def test_the_first_model_is_one_that_a_node_holds(gpu, gpus_per_node, model):
    assert first_grid(gpu=gpu, gpus_per_node=gpus_per_node)["models"] == [model]


def test_the_global_batch_splits_evenly_over_the_gpus_of_every_node_count():
    found = first_grid(max_nodes=4)
    tokens = int(found["global_batch"].removesuffix("Mi")) * 2**20
    assert tokens % (found["sequence_length"] * 8 * found["nodes"][-1]) == 0
    assert tokens >= SEQUENCES * found["sequence_length"]
