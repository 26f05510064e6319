"""The methods, each as a command that measures all runs and returns once they are done or submitted.

Conditions are equal: training runs with one thread per rank everywhere, jobs are submitted at once and without delays,
and every method's jobs have the node exclusively, since two runs on two cores would disturb each other.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
TRAINING = Path(__file__).with_name("training.py")
SBATCH = "#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=2 --exclusive --time=10"

GRID = """
name: rivals
workload: small_ddp
models: [tiny-1M]
nodes: 1
sequence_length: 16
global_batch: 32
dtype: fp32
micro_batch_size: 1
repeats: {runs}
warmup_iterations: 1
iterations: {timed}
params: {{sleep_s: {sleep_s}}}
site: {{name: one-node, gpu: cpu, gpus_per_node: 2, pilot_time: 30m}}
"""


@dataclass(frozen=True)
class Task:
    """The task: number of runs, iterations per run, idle seconds per iteration."""

    runs: int
    iterations: int
    sleep_s: float
    folder: Path
    """on the shared file system: everything that the method writes there is counted"""
    hydra_python: str
    """the interpreter that has hydra-submitit-launcher"""
    engines_python: str = sys.executable
    """the interpreter that has hyperqueue and parsl"""

    @property
    def results(self) -> Path:
        """Where rank 0 of each run appends its line."""
        return self.folder / "results.jsonl"


def job_per_run(task: Task) -> list[str]:
    """One script and one job per run, all submitted in a loop, as published benchmark scripts do."""
    lines = []
    for number in range(task.runs):
        script = task.folder / f"run{number:04d}.sbatch"
        logs = f"#SBATCH --output={task.folder}/run{number:04d}.log --job-name=run{number:04d}"
        script.write_text(f"#!/bin/bash\n{SBATCH}\n{logs}\n{_torchrun(task)}\n")
        lines.append(f"sbatch --parsable {script}")
    return ["bash", "-ec", "\n".join(lines)]


def loop_in_one_job(task: Task) -> list[str]:
    """One allocation, torchrun after torchrun."""
    script = task.folder / "loop.sbatch"
    loop = f"for number in $(seq {task.runs}); do {_torchrun(task)} > {task.folder}/run$number.log 2>&1; done"
    script.write_text(f"#!/bin/bash\n{SBATCH}\n#SBATCH --output={task.folder}/loop.log\n{loop}\n")
    return ["sbatch", "--parsable", str(script)]


def submitit_array(task: Task) -> list[str]:
    """submitit's map_array."""
    arguments = (task.runs, task.iterations, task.sleep_s, task.folder)
    return [sys.executable, "-m", "benchmarks.rivals.submitit_map", *map(str, arguments)]


def hydra_multirun(task: Task) -> list[str]:
    """Hydra's submitit launcher."""
    launcher = {"tasks_per_node": 2, "nodes": 1, "timeout_min": 10, "submitit_folder": f"{task.folder}/submitit/%j"}
    options = [f"hydra.launcher.{key}={value}" for key, value in launcher.items()]
    options += ["+hydra.launcher.additional_parameters.exclusive=true", f"hydra.sweep.dir={task.folder}/multirun"]
    given = [f"iterations={task.iterations}", f"sleep={task.sleep_s}", f"results={task.results}"]
    numbers = ",".join(map(str, range(task.runs)))
    module = [task.hydra_python, "-m", "benchmarks.rivals.hydra_app", "--multirun", "hydra/launcher=submitit_slurm"]
    return [*module, *options, *given, f"number={numbers}"]


def hyperqueue(task: Task) -> list[str]:
    """HyperQueue in one allocation: a task for each run. One of several nodes has `n_nodes` instead of `cpus`."""
    script = task.folder / "hyperqueue.sbatch"
    command = _engine(task, "hyperqueue_app")
    script.write_text(f"#!/bin/bash\n{SBATCH}\n#SBATCH --output={task.folder}/hyperqueue.log\n{command}\n")
    return ["sbatch", "--parsable", str(script)]


def parsl(task: Task) -> list[str]:
    """Parsl with a block of one node."""
    return ["bash", "-c", _engine(task, "parsl_app")]


def _engine(task: Task, app: str) -> str:
    file = TRAINING.with_name(f"{app}.py")
    words = shlex.join([task.engines_python, str(file), str(task.folder), str(task.runs)])
    return f"export PATH={shlex.quote(str(Path(task.engines_python).parent))}:$PATH\n{words} {_torchrun(task)}"


def sweep(task: Task) -> list[str]:
    """This project, with its defaults."""
    grid = task.folder / "grid.yaml"
    grid.write_text(GRID.format(runs=task.runs, timed=task.iterations - 1, sleep_s=task.sleep_s))
    options = ["--dir", f"{task.folder}/sweep", "--executor", "slurm", "--yes"]
    return [sys.executable, "-m", "sweep.cli.main", "launch", str(grid), *options]


METHODS: dict[str, Callable[[Task], list[str]]] = {
    "sweep": sweep,
    "job per run": job_per_run,
    "submitit map_array": submitit_array,
    "Hydra submitit launcher": hydra_multirun,
    "torchrun loop": loop_in_one_job,
    "HyperQueue": hyperqueue,
    "Parsl": parsl,
}


def environment(workload_folder: Path) -> dict[str, str]:
    """The same for every method: the repository importable, one thread per rank, the workload registered."""
    folder = workload_folder / "small_ddp-0.1.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: small-ddp\nVersion: 0.1\n")
    (folder / "entry_points.txt").write_text("[sweep.workloads]\nsmall_ddp = benchmarks.rivals.workload:WORKLOAD\n")
    paths = [str(REPOSITORY), str(workload_folder), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}


def ended(task: Task, method: str) -> list[tuple[float, float]]:
    """(unix seconds of the end, seconds of training) of each run that succeeded, oldest first."""
    if method == "sweep":
        return sorted(_records(task))
    if not task.results.exists():
        return []
    rows = [json.loads(line) for line in task.results.read_text().splitlines()]
    return sorted((row["time"], row["train_s"]) for row in rows)


def records(task: Task) -> list[dict[str, Any]]:
    """The sweep's records, oldest first."""
    from sweep.state.events import Recorded

    return [event.record for event in events(task, Recorded)]


def events(task: Task, kind: Any) -> list[Any]:
    """The sweep's events of a kind, oldest first."""
    from sweep.state.events import decoder
    from sweep.store.directory import SweepDir
    from sweep.store.journal import JournalReader

    if not (task.folder / "sweep" / "journal").is_dir():
        return []
    found = JournalReader(SweepDir(task.folder / "sweep"), decode=decoder(dict)).new_events()
    return [event for event in found if isinstance(event, kind)]


def _records(task: Task) -> list[tuple[float, float]]:
    ok = (record for record in records(task) if record["outcome"] == "ok")
    return [(float(one["ended_at"]), sum([*one["warmup_times_s"], *one["step_times_s"]])) for one in ok]


def _torchrun(task: Task) -> str:
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", str(TRAINING)]
    words += ["--iterations", str(task.iterations), "--sleep", str(task.sleep_s), "--results", str(task.results)]
    return shlex.join(words)
