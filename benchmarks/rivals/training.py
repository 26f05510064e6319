"""The training that every method runs: DistributedDataParallel of a small model over the given ranks.

As a script, started by torchrun: ``training.py --iterations N --sleep S --results FILE``.
As sweep's rank (``main``; declared in ``workload.py``), and as a function for submitit and Hydra
(``train``).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from bench_workloads.process import join
from sweep.contract import Measurement, Phase, Progress, RankRun

WIDTH, LAYERS, BATCH = 256, 4, 16
JOIN_TIMEOUT_S = 60.0


def train(iterations: int, sleep_s: float, report: Callable[[int], None] = lambda _: None) -> list[float]:
    """Seconds of each iteration, of ranks in a process group. ``sleep_s``: each lasts longer, as of a large model."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()) for _ in range(LAYERS)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(BATCH, WIDTH)
    times = []
    for number in range(iterations):
        report(number)
        begin = time.perf_counter()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(sleep_s)
        times.append(time.perf_counter() - begin)
    # A model that outlives its process group can deadlock: its destructor joins a thread under the interpreter's lock
    del model, optimizer, loss
    gc.collect()
    dist.destroy_process_group()
    return times


def meet_and_train(iterations: int, sleep_s: float) -> list[float]:
    """The same with the rendezvous from the environment, as torchrun and submitit set it."""
    dist.init_process_group("gloo")
    return train(iterations, sleep_s)


def submitits_environment() -> None:
    """What submitit's helper sets, except the host: nodes of a one-machine cluster have no address of their own."""
    from submitit.helpers import TorchDistributedEnvironment

    TorchDistributedEnvironment().export()
    os.environ["MASTER_ADDR"] = "127.0.0.1"


def keep(results: Path, times: list[float]) -> None:
    """One line by rank 0, as the published scripts append theirs to one file."""
    if os.environ["RANK"] == "0":
        line = json.dumps({"train_s": sum(times), "time": time.time()}) + "\n"
        with results.open("a") as file:
            file.write(line)


def main(run: RankRun, progress: Progress) -> None:
    """The entry point of sweep's rank."""
    count = run.warmup_iterations + run.iterations
    sleep_s = float(run.params["sleep_s"] or 0.0)
    laps = [time.perf_counter()]
    join(run.place, torch.device("cpu"), JOIN_TIMEOUT_S)
    laps.append(time.perf_counter())

    def report(number: int) -> None:
        laps.append(time.perf_counter())
        progress.heartbeat(Phase.STEADY if number else Phase.FIRST_ITERATION, number)

    times = train(count, sleep_s, report)
    warmup = run.warmup_iterations
    measurement = Measurement(
        step_times_s=times[warmup:],
        warmup_times_s=times[:warmup],
        phases_s={"rendezvous": laps[1] - laps[0], "build": laps[2] - laps[1]},
        effective={"dp": run.place.world_size},
    )
    progress.measured(measurement)


def _arguments() -> Any:
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--sleep", type=float, default=0.0)
    parser.add_argument("--results", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    given = _arguments()
    keep(given.results, meet_and_train(given.iterations, given.sleep))
