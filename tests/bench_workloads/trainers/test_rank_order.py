"""Each trainer's own process finds itself at the rank, node and place on it that the pilot gave it."""

import selectors
import threading
from dataclasses import replace
from unittest.mock import Mock

import pytest

from bench_workloads.trainers import TRAINERS
from bench_workloads.trainers.driver.driver import drive
from bench_workloads.trainers.driver.exchange import Exchange
from sweep.contract import Layout, RankRun, Run
from sweep.plugins import TRAINER
from tests.support.simulated import place
from tests.support.trainers.layouts import PARAMS, SHAPE

HERE = place(2, 4, local_rank=0, local_world_size=2, node_rank=1, master_port=0)
"""the first rank of the second of two nodes, in the order of the leader"""


def greet(hub):
    """Rank 0 sends the trainer's port to the first rank that connects."""
    while not hub.joined:
        for key, _ in hub.selector.select(1.0):
            hub.receive(key.fileobj)


@pytest.mark.parametrize("start", ["rank", "node"])
@pytest.mark.parametrize("trainer", sorted(TRAINERS))
def test_a_trainers_process_has_its_place_in_the_leaders_order(tmp_path, monkeypatch, trainer, start):
    seen = tmp_path / "seen"
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\n{{ env; echo "ARGV $*"; }} > {seen}\nexit 3\n')
    program.chmod(0o755)
    hub = replace(HERE, rank=0, node_rank=0, scratch_dir=str(tmp_path))
    exchange = Exchange(hub, selectors.DefaultSelector())
    port = exchange._listener.getsockname()[1]
    threading.Thread(target=greet, args=(exchange,), daemon=True).start()
    here = replace(HERE, master_port=port, scratch_dir=str(tmp_path))
    for name, value in {**here.torchrun_variables(), **here.slurm_variables()}.items():
        monkeypatch.setenv(name, value)  # as the agent sets them for this rank
    given = {**PARAMS.get(trainer, {}), "start": start, "python": str(program), "workdir": str(tmp_path)}
    if trainer == "command":
        given |= {"command": str(program), "metrics": r"iteration: step (\d+)"}
    run = Run(
        workload=trainer, model="small", shape=SHAPE, nodes=2, gpus_per_node=2, sequence_length=512,
        layout=Layout(dp=4), params={**TRAINER.find(trainer).workload.params, **given},
    )  # fmt: skip
    with pytest.raises(SystemExit):
        drive(TRAINER.find(trainer), RankRun.of(run, here), Mock())
    exchange.close()
    *lines, argv = seen.read_text().splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    if start == "node" and trainer != "command":
        assert {"--nnodes=2", "--node-rank=1", "--nproc-per-node=2"} <= {*argv.split()}
    wanted = {
        "RANK": "2",
        "LOCAL_RANK": "0",
        "GROUP_RANK": "1",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "2",
        "SLURM_PROCID": "2",
        "SLURM_LOCALID": "0",
        "SLURM_NODEID": "1",
        "SLURM_NTASKS": "4",
        "SLURM_NNODES": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(exchange.port),
    }
    assert {name: found.get(name) for name in wanted} == wanted


def test_of_several_ranks_in_a_process_torchruns_variables_name_none():
    one, several = (place(5, 8, ranks_in_process=ranks).torchrun_variables() for ranks in (1, 2))
    assert several == {name: one[name] for name in one if name not in ("RANK", "LOCAL_RANK")}
    assert len(several) == len(one) - 2
