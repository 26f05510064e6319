"""submitit's way: one array of jobs, a task per rank. ``submitit_map.py RUNS ITERATIONS SLEEP FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path


def measure(number: int, iterations: int, sleep_s: float, results: str) -> int:
    """One run, in each of the job's tasks."""
    from benchmarks.rivals.training import keep, meet_and_train, submitits_environment

    submitits_environment()
    keep(Path(results), meet_and_train(iterations, sleep_s))
    return number


def main(runs: int, iterations: int, sleep_s: float, folder: Path) -> None:
    import submitit

    executor = submitit.AutoExecutor(folder=folder / "submitit", cluster="slurm")
    executor.update_parameters(nodes=1, tasks_per_node=2, timeout_min=10, slurm_exclusive=True, slurm_use_srun=True)
    columns = (range(runs), [iterations] * runs, [sleep_s] * runs, [str(folder / "results.jsonl")] * runs)
    for job in executor.map_array(measure, *columns):
        job.results()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4]))
