"""This project against six ways of measuring many short runs on Slurm, side by side on one cluster of one machine.

    python -m benchmarks.rivals [--runs 20] [--rivals-runs 6] [--rounds 2] [--iterations 7] [--sleep 0]
                                [--hydra-python PYTHON] [--engines-python PYTHON]
                                [--only METHOD]...

Needs what ``python -m tests.support.slurm.cluster up`` needs (root, Debian's Slurm, MariaDB), torch, for Hydra an
interpreter with torch and hydra-submitit-launcher, and for HyperQueue and Parsl one with hyperqueue and parsl. The
cluster has one node with two ranks, so that every method
measures one run after another. Methods alternate, round after round, and of each the round with the least overhead
counts, since other programs may disturb any of them. The rivals may have fewer runs: their overhead per run does not
depend on how many there are. Prints Markdown; ``--json FILE`` keeps the numbers of all rounds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.creations import Creations
from benchmarks.rivals.methods import METHODS, Task, ended, environment, events, records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.slurm.cluster import Cluster

POLL_S = 0.5


@dataclass
class Found:
    """The cost of one method for all its runs."""

    method: str
    runs: int
    ok: int
    train_s: float
    """of all runs"""
    allocated_s: float
    """of the node, all jobs together"""
    wall_s: float
    """from the command to the last result"""
    first_result_s: float
    jobs: int
    rpcs: int
    """to the controller, from clients and nodes"""
    creations: int
    """names created in the method's folder"""
    login_cpu_s: float
    login_memory_mib: float
    load: float
    """of the machine over the last minute, as the method ended"""

    @property
    def overhead_s(self) -> float:
        """Seconds of allocation per run beyond its training."""
        return (self.allocated_s - self.train_s) / max(1, self.ok)


def measure(cluster: Cluster, method: str, task: Task, env: dict[str, str]) -> Found:
    """One method, from an idle cluster to an idle cluster."""
    known = set(allocations(cluster))
    before = rpcs(cluster)
    with Creations(task.folder) as seen:
        command = METHODS[method](task)
        begin = time.time()
        log = (task.folder.parent / f"{task.folder.name}.log").open("wb")
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log, cwd=task.folder.parent)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            print((task.folder.parent / f"{task.folder.name}.log").read_text()[-2000:], file=sys.stderr)
        asked = wait_for_all(cluster, task, method)
    runs = ended(task, method)
    if not runs:
        raise SystemExit(f"{method}: no run succeeded")
    first, last = runs[0][0], runs[-1][0]
    after = rpcs(cluster)
    jobs = {job: seconds for job, seconds in allocations(cluster).items() if job not in known}
    return Found(
        method=method, runs=task.runs, ok=len(runs), train_s=sum(seconds for _, seconds in runs),
        allocated_s=sum(jobs.values()), wall_s=last - begin,
        first_result_s=first - begin, jobs=len(jobs), rpcs=after - before - asked,
        creations=seen.count, login_cpu_s=usage.ru_utime + usage.ru_stime, login_memory_mib=usage.ru_maxrss / 1024,
        load=os.getloadavg()[0],
    )  # fmt: skip


def wait_for_all(cluster: Cluster, task: Task, method: str) -> int:
    """Until all results are there and no job is left; the number of controller queries meanwhile."""
    asked = 0
    deadline = time.monotonic() + 1200
    while len(ended(task, method)) < task.runs and time.monotonic() < deadline:
        time.sleep(POLL_S)
        if not int(time.monotonic()) % 20:  # a job that failed leaves no result
            asked += 1
            if not cluster.run("squeue", "-h", "-o", "%i").split():
                break
    while cluster.run("squeue", "-h", "-o", "%i").split() and time.monotonic() < deadline:
        asked += 1
        time.sleep(POLL_S)
    return asked + 1


def allocations(cluster: Cluster) -> dict[str, float]:
    """Job id -> node-seconds, by accounting (whole seconds)."""
    lines = cluster.run("sacct", "-a", "-X", "-n", "-P", "-S", "now-1days", "-o", "JobID,ElapsedRaw,AllocNodes")
    rows = (line.split("|") for line in lines.splitlines())
    return {row[0]: float(row[1]) * max(1, int(row[2])) for row in rows}


def rpcs(cluster: Cluster) -> int:
    """Remote procedure calls that the controller has served, except those of sdiag itself."""
    text = cluster.run("sdiag")
    part = text.partition("statistics by message type")[2].partition("statistics by user")[0]
    counts = dict(re.findall(r"(\w+)\s+\(\s*\d+\) count:(\d+)", part))
    return sum(int(count) for name, count in counts.items() if name != "REQUEST_STATS_INFO")


@contextmanager
def cluster_of_one(env: dict[str, str]) -> Iterator[Cluster]:
    """One node that holds one run at a time."""
    from tests.support.slurm.cluster import Cluster

    os.environ.update(env)
    with Cluster(nodes=1, gpus_per_node=2, accounting=True) as cluster:
        yield cluster


def table(found: list[Found]) -> str:
    """Markdown, with the ratios to this project."""
    methods = dict.fromkeys(one.method for one in found)
    heads = (
        "method",
        "overhead per run, s of allocation",
        "by round",
        "of ours",
        "runs/h",
        "first result, s",
        "Slurm jobs",
    )
    heads += ("RPCs per run", "files made per run", "login CPU, s", "login MiB")
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    best = [min((one for one in found if one.method == name), key=lambda one: one.overhead_s) for name in methods]
    own = next((one.overhead_s for one in best if one.method == "sweep"), None)
    for one in best:
        rounds = ", ".join(f"{other.overhead_s:.2f}" for other in found if other.method == one.method)
        ratio = "-" if own is None else f"{one.overhead_s / own:.1f}×"
        cells = (one.method, f"{one.overhead_s:.2f}", rounds, ratio, f"{3600 * one.ok / one.wall_s:.0f}")
        per_run = (f"{one.rpcs / one.runs:.1f}", f"{one.creations / one.runs:.1f}")
        cells += (f"{one.first_result_s:.1f}", one.jobs, *per_run, f"{one.login_cpu_s:.1f}")
        cells += (f"{one.login_memory_mib:.0f}",)
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def by_phase(task: Task) -> str:
    """Markdown: what the time from record to record is made of, in ms, of a pilot's later runs (preloaded fork server).

    Processes: the order, forks, the ranks' own start. Rendezvous and model: torch's, of the rank that waits least.
    Clean-up: from the last rank's result to a clean node. Beside: all else between the attempt's line and its record.
    """
    from sweep.state.events import AttemptStarted

    found = events(task, AttemptStarted)
    began = {(event.run_id, event.attempt): event.time for event in found}
    rows = [record for record in records(task) if record["outcome"] == "ok"]
    lines = []
    for before, row in itertools.pairwise(rows):
        ended, started = float(before["ended_at"]), float(row["started_at"])
        names = ("start_s", "first_iteration_s", "measure_s", "teardown_s")
        start, first, measured, clean = (float(row[name]) for name in names)
        phases = json.loads(row["extra_json"])["phases_s"]
        joined, built = (float(phases[name]["min"]) for name in ("rendezvous", "build"))
        order = began[row["run_id"], row["attempt"]]
        whole = float(row["ended_at"]) - ended
        diagnosed = float(row["ended_at"]) - started - float(row["total_s"])
        ours = order - ended, started - order, start - joined - built
        lines.append((*ours, joined, built, first + measured, clean, diagnosed, whole))
    if not lines:
        return ""
    heads = (
        "record and choice",
        "claim's line",
        "processes",
        "rendezvous",
        "model",
        "iterations",
        "clean-up",
        "beside",
    )
    heads += ("record to record",)
    texts = [f"| {head} | {1e3 * statistics.median(column):.1f} | {1e3 * min(column):.1f} |"
             for head, column in zip(heads, zip(*lines, strict=True), strict=True)]  # fmt: skip
    return "\n".join(["| phase | median, ms | least, ms |", "|---|---|---|", *texts])


def machine() -> str:
    """The machine, as text."""
    text = Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*: (.*)", text)
    import torch

    from tests.support.slurm.services import slurm_version

    slurm = ".".join(f"{part:02}" for part in slurm_version())
    kind = model[1] if model else platform.machine()
    return f"{os.cpu_count()} cores ({kind}), Slurm {slurm}, torch {torch.__version__}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rivals", description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--rivals-runs", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=7)
    parser.add_argument("--sleep", type=float, default=0.0, help="idle seconds in each iteration")
    parser.add_argument("--hydra-python", default=sys.executable)
    parser.add_argument("--engines-python", default=sys.executable, help="has hyperqueue and parsl")
    parser.add_argument("--only", action="append", choices=list(METHODS))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found, phases = [], ""
    with tempfile.TemporaryDirectory(prefix="rivals-") as folder:
        env = environment(Path(folder))
        with cluster_of_one(env) as cluster:
            for number, method in product(range(given.rounds), given.only or METHODS):
                mine = Path(folder) / f"{method.replace(' ', '-')}-{number}"
                mine.mkdir()
                count = given.runs if method == "sweep" else given.rivals_runs
                task = Task(count, given.iterations, given.sleep, mine, given.hydra_python, given.engines_python)
                found.append(measure(cluster, method, task, {**cluster.env, **env}))
                phases = by_phase(task) or phases
                print(found[-1], file=sys.stderr, flush=True)
    train_s = statistics.fmean(one.train_s / max(1, one.ok) for one in found)
    counts = f"{given.runs} runs ({given.rivals_runs} by the other methods)"
    print(f"{counts} of 2 ranks, {train_s:.2f} s of training each. {machine()}.\n\n{table(found)}\n\n{phases}")
    if given.json:
        rows: list[dict[str, Any]] = [{**asdict(one), "overhead_s": one.overhead_s} for one in found]
        given.json.write_text(json.dumps(rows, indent=1) + "\n")
    return int(any(one.ok < one.runs for one in found))


if __name__ == "__main__":
    sys.exit(main())
