"""Parsl's way: one block of its HighThroughputExecutor, a Slurm job of one node, and a ``bash_app`` for each run.

``parsl_app.py FOLDER RUNS COMMAND...`` (needs parsl)
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import SlurmProvider


@parsl.bash_app
def run(command: str, **_: Any) -> str:
    return command


def main(folder: Path, runs: int, command: list[str]) -> None:
    provider = SlurmProvider(cores_per_node=2, exclusive=True, walltime="00:10:00", worker_init=f"cd {folder}")
    executor = HighThroughputExecutor(
        address="127.0.0.1", provider=provider, max_workers_per_node=1, encrypted=False, poll_period=10
    )
    with parsl.load(Config(executors=[executor], run_dir=f"{folder}/runinfo", strategy="none")):
        tasks = [run(shlex.join(command), stdout=f"{folder}/run{number}.log") for number in range(runs)]
        for task in tasks:
            task.result()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
