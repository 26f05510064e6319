"""Runs of the simulated workload, and the place of a rank in one."""

from sweep.contract import Layout, Place, RankRun, Run
from sweep.physics.catalogue import MODELS


def place(rank: int = 0, ranks: int = 1, **changes) -> Place:
    """The place of a rank on one node."""
    values = {"rank": rank, "world_size": ranks, "local_rank": rank, "local_world_size": ranks, "node_rank": 0}
    return Place(**{**values, "master_addr": "127.0.0.1", "master_port": 1, **changes})


def placed(run: Run, rank: int = 0, seed: int = 0) -> RankRun:
    return RankRun.of(run, place(rank, run.gpus, seed=seed))


def big(layout: Layout, **values) -> Run:
    of_model = {"model": "8B", "shape": MODELS["Llama-3-8B"].as_dict(), "sequence_length": 4096}
    of_layout = {"nodes": 1, "gpus_per_node": layout.gpus, "layout": layout}
    return Run(**{"workload": "simulated", **of_model, **of_layout, **values})
