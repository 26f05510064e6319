"""The first grid that `sweep init` writes: how wide and how large it is, by the facts of the site."""

import pytest
import yaml

from sweep.inputs.starter_files import WIDEST, grid_text, site_text
from sweep.inputs.validation import amount


def first_grid(**facts):
    return yaml.safe_load(grid_text({"gpu": "h100", "gpus_per_node": 8} | facts))


@pytest.mark.parametrize(
    ("max_nodes", "nodes"), [(1, [1]), (2, [1, 2]), (3, [1, 2]), (4, [1, 2, 4]), (10 * WIDEST, None)]
)
def test_node_counts_are_powers_of_two_that_the_cluster_has(max_nodes, nodes):
    found = first_grid(max_nodes=max_nodes)["nodes"]
    assert found == nodes or (nodes is None and found[-1] <= WIDEST < 2 * found[-1])


@pytest.mark.parametrize(
    ("gpu", "gpus_per_node", "model"),
    [
        ("h100", 8, "Llama-3-8B"),
        ("h100", 4, "Llama-3-8B"),
        ("h100", 1, "Llama-3.2-1B"),  # its states alone need more than one GPU
        ("a100-40gb", 8, "Llama-3-8B"),
        ("l4", 16, "Llama-3.2-1B"),  # enough in the node, too little in each GPU
        ("cpu", 8, "tiny-1M"),
    ],
)
def test_the_first_model_is_one_that_a_node_holds(gpu, gpus_per_node, model):
    assert first_grid(gpu=gpu, gpus_per_node=gpus_per_node)["models"] == [model]


def test_the_first_grid_is_the_same_for_every_kind_of_hardware_but_for_what_that_needs():
    common = {"name": "first", "nodes": [1], "pp": [1, 2], "tp": "auto"}
    large = {
        "models": ["Llama-3-8B"],
        "sequence_length": 4096,
        "global_batch": "1Mi",
        "dtype": "bf16",
        "zero": [0, 1, 3],
    }
    assert first_grid() == common | large | {"micro_batch_size": [1, 2], "recompute": ["none", "full"]}
    small = {"models": ["tiny-1M"], "sequence_length": 128, "global_batch": "2Ki", "dtype": "fp32", "zero": [0, 3]}
    assert first_grid(gpu="cpu") == common | small | {"micro_batch_size": [1, 2]}
    assert first_grid(gpu="v100")["dtype"] == "fp32", "it has no bf16"


@pytest.mark.parametrize(("seconds", "text"), [
    (4 * 3600, "4h"), (3600, "1h"), (1800, "30m"), (5400, "90m"), (90, "90s"), (60, "1m"), (3601, "3601s"),
])  # fmt: skip
def test_the_wall_time_of_a_pilot_is_written_in_the_largest_whole_unit(seconds, text):
    site = yaml.safe_load(site_text({"gpu": "h100", "gpus_per_node": 8, "pilot_time": seconds}))
    assert site == {"gpu": "h100", "gpus_per_node": 8, "pilot_time": text}


@pytest.mark.parametrize(("gpu", "gpus", "nodes", "sequences"), [
    ("h100", 8, 1, 256), ("h100", 3, 1, 258), ("h100", 300, 1, 300), ("h100", 257, 1, 257), ("h100", 3, 4, 264),
    ("cpu", 3, 4, 24),
])  # fmt: skip
def test_a_step_has_256_sequences_on_cpus_16_or_the_next_number_that_all_ranks_divide(gpu, gpus, nodes, sequences):
    found = first_grid(gpu=gpu, gpus_per_node=gpus, max_nodes=nodes)
    assert amount(found["global_batch"]) == sequences * found["sequence_length"]
