"""How long `sweep status` and `sweep resume` take on a sweep of 20,000 runs.

    python -m benchmarks.large_sweep [--runs 20000] [--waiting 500] [--keep DIR]

Creates a sweep directory with the code of a real sweep (plan, claims, records, journals of a launcher and 50
pilots, with their heartbeats), then times the commands as separate processes, from start to end: seconds of the
clock, seconds of CPU (user and system, which a busy machine distorts less) and the machine's load. `resume` runs with
a fake sbatch that records when it was called and accepts the job: the time to that call counts. `status`
is timed with a complete snapshot, and after a pilot has measured further runs, so that the search runs again. Prints
JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil

from sweep.contract import Measurement
from sweep.inputs.load import parse_grid
from sweep.outcomes import Outcome
from sweep.planning.build import build
from sweep.planning.runs import PlannedRun
from sweep.records.record import EndedAttempt, build_record
from sweep.state.events import (
    AttemptStarted,
    PilotAlive,
    PilotEnded,
    PilotGone,
    PilotIntended,
    PilotStarted,
    PilotSubmitted,
    Recorded,
    SessionBegan,
    SessionEnded,
)
from sweep.store.create import create
from sweep.store.directory import Claim, SweepDir, try_claim
from sweep.store.journal import Journal
from sweep.store.lease import take
from sweep.store.sweep import Sweep, open_sweep

GRID = """
name: large
workload: simulated
models: [1B, 3B, 8B]
nodes: [1, 2, 4, 8, 16, 32, 64]
sequence_length: 4096
global_batch: 1Mi
global_batch_tolerance: 0.5
tp: [1, 2, 4, 8]
pp: [1, 2, 4, 8]
zero: [0, 1, 3]
micro_batch_size: [1, 2, 4, 8]
recompute: [none, full]
repeats: {repeats}
site: {{name: big, gpu: h100, gpus_per_node: 8, pilot_time: 4h, max_pilots: 50}}
"""
PILOTS = 50
RUN_S = 30.0
ALIVE_S = 10.0
LATER, MORE = "p0900", 100
"""a pilot whose records are newer than the snapshot, and their number"""


def made(directory: Path, runs: int, waiting: int) -> Sweep:
    """A sweep whose runs are all measured except the last `waiting`; no pilot is running."""
    grid = parse_grid(GRID.format(repeats=1), "large")
    assert grid.site is not None
    once = build(grid, grid.site).run_count
    text = GRID.format(repeats=-(-runs // once))
    grid = parse_grid(text, "large")
    assert grid.site is not None
    sweep = create(directory, grid, grid.site, build(grid, grid.site), executor="slurm")
    with _without_fsync():  # a disk that waits 100,000 times shows nothing here
        _play(sweep, sweep.runs[: len(sweep.runs) - waiting])
    return sweep


def _play(sweep: Sweep, runs: Sequence[PlannedRun]) -> None:
    """What launcher and pilots write during measurement."""
    launcher = take(sweep.directory)
    log = Journal(sweep.directory.journal(launcher.writer))
    begin = time.time() - RUN_S * (len(runs) / PILOTS + 10)
    log.append(SessionBegan(time=begin, epoch=launcher.epoch, host="login", pid=1))
    for number in range(PILOTS):
        name = f"p{number + 1:04d}"
        nodes = max((run.nodes for run in runs[number::PILOTS]), default=1)
        token = f"{sweep.sweep_id}-{name}"
        sweep.directory.pilot(name).mkdir(mode=0o700)
        log.append(PilotIntended(time=begin, pilot=name, token=token, nodes=nodes, time_limit_s=14400))
        log.append(PilotSubmitted(time=begin, pilot=name, job_id=str(1000 + number)))
        end = _lead(sweep, name, str(1000 + number), nodes, runs[number::PILOTS], begin)
        log.append(PilotGone(time=end, pilot=name, word="COMPLETED"))
    log.append(SessionEnded(time=time.time()))
    log.close()


def _lead(sweep: Sweep, name: str, job_id: str, nodes: int, runs: Sequence[PlannedRun], begin: float) -> float:
    """One pilot's journal; its end time."""
    journal = Journal(sweep.directory.journal(f"pilot-{name}"))
    names, now, alive_at = [f"node{i:03d}" for i in range(nodes)], begin, begin
    journal.append(PilotStarted(time=now, pilot=name, job_id=job_id, nodes=tuple(names)))
    for planned in runs:
        mine = names[: planned.nodes]
        try_claim(sweep.directory, planned.run_id, 1, Claim(pilot=name, job_id=job_id, time=now))
        journal.append(AttemptStarted(time=now, pilot=name, run_id=planned.run_id, attempt=1, nodes=tuple(mine)))
        record = _record(sweep, planned, name, job_id, mine, now)
        now += RUN_S
        journal.append(Recorded(time=now, pilot=name, record=record))
        while alive_at < now:
            alive_at += ALIVE_S
            journal.append(PilotAlive(time=alive_at, pilot=name))
    journal.append(PilotEnded(time=now, pilot=name, reason="nothing left that fits"))
    journal.close()
    return now


def _measure_more(sweep: Sweep) -> None:
    """A pilot that no launcher has read yet: it measured some of the runs left out, the waiting ones remain."""
    out = sweep.skipped()
    more = [run for run in sweep.runs if run.run_id in out][:MORE]
    with _without_fsync():
        _lead(sweep, LATER, "2000", max((run.nodes for run in more), default=1), more, time.time() - RUN_S * MORE)


def _record(sweep: Sweep, planned: PlannedRun, pilot: str, job_id: str, nodes: list[str], now: float) -> dict[str, Any]:
    run, chance = planned.run(), random.Random(planned.run_id)
    outcome = chance.choices([Outcome.OK, Outcome.OOM_CUDA, Outcome.CONFIG_ERROR], (80, 15, 5))[0]
    measured = Measurement(
        step_times_s=[chance.gauss(1.0, 0.01) for _ in range(run.iterations)],
        peak_allocated_bytes=chance.randrange(1 << 34, 1 << 36),
        versions={"python": "3.11", "torch": "2.13.0"},
        effective={"dp": run.layout.dp, "tp": run.layout.tp, "pp": run.layout.pp},
        simulated=True,
    )
    ok = outcome is Outcome.OK
    attempt = EndedAttempt(
        run=run, number=1, sweep_name=sweep.grid.name, pilot=pilot, job_id=job_id, nodes=nodes, gpu="h100",
        started_at=now, ended_at=now + RUN_S, outcome=outcome, times_s={"start_s": 0.5},
        message=None if ok else f"rank 3 failed on {nodes[0]}: {outcome}",
        evidence=None if ok else "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. " * 4,
    )  # fmt: skip
    record = build_record(attempt, [measured if ok else None] * run.gpus)
    values: dict[str, Any] = msgspec.to_builtins(record)
    return values


@contextlib.contextmanager
def _without_fsync() -> Iterator[None]:
    real, os.fsync = os.fsync, lambda fd: None  # noqa: ARG005
    try:
        yield
    finally:
        os.fsync = real


def timed(*arguments: str) -> dict[str, float]:
    """A sweep command as a separate process: seconds by the clock, of CPU, and the machine's load."""
    begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "sweep.cli.main", *arguments], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"s": round(time.monotonic() - begin, 2), "cpu_s": round(cpu_s, 2), "load": round(os.getloadavg()[0], 1)}


FAKE_SLURM = """#!/bin/sh
case "$(basename "$0")" in
sbatch) date +%s.%N >> {calls}; echo "$(wc -l < {calls})" ;;
scontrol) echo "AccountingStorageType = accounting_storage/none" ;;
esac
"""


def first_submission(directory: Path, folder: Path) -> dict[str, float]:
    """From `sweep resume` to its first sbatch, as ``timed``. The launcher is ended then."""
    calls = folder / "calls"
    for name in ("sbatch", "squeue", "sacct", "scontrol", "scancel", "sinfo"):
        client = folder / "bin" / name
        client.parent.mkdir(exist_ok=True)
        client.write_text(FAKE_SLURM.format(calls=calls))
        client.chmod(0o755)
    env = {**os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "sweep.cli.main", "resume", str(directory)]
    begin = time.time()
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        cpu_s = 0.0
        while not (calls.exists() and calls.read_text()):
            cpu_s = sum(psutil.Process(process.pid).cpu_times()[:2])
            if process.poll() is not None:
                assert process.stderr is not None
                raise SystemExit(f"resume ended with {process.returncode}: {process.stderr.read().decode()[-1000:]}")
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    took_s = float(calls.read_text().splitlines()[0]) - begin
    return {"s": round(took_s, 2), "cpu_s": round(cpu_s, 2), "load": round(os.getloadavg()[0], 1)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_sweep", description=__doc__)
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--waiting", type=int, default=500)
    parser.add_argument("--keep", type=Path, help="create it here and keep it; an existing one is used")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="large-sweep-"))
    directory = given.keep or folder / "sweep"
    found: dict[str, Any] = {}
    try:
        begin = time.monotonic()
        if not (directory / "provenance.json").exists():
            sweep = made(directory, given.runs, given.waiting)
            found |= {"runs": len(sweep.runs), "made_s": round(time.monotonic() - begin, 1)}
        journals = sum(path.stat().st_size for path in (directory / "journal").iterdir())
        found |= {"journals_mib": round(journals / 2**20, 1), "claims": len(list((directory / "claims").iterdir()))}
        for name, command in (("help", ["--help"]), ("status_first", ["status"]), ("status_again", ["status"])):
            found[name] = timed(*command, *([str(directory)] * (name != "help")))
        if not (journal := SweepDir(directory).journal(f"pilot-{LATER}")).exists():
            _measure_more(open_sweep(directory))
        found |= {"status_behind": timed("status", str(directory)), "behind_bytes": journal.stat().st_size}
        found["resume_to_first_sbatch"] = first_submission(directory, folder)
        print(json.dumps(found, indent=1))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
