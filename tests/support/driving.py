"""Run the command line as a user does, and read what a sweep left."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, TypeVar

import psutil
import yaml

from sweep.state.events import Event, Recorded, decoder
from sweep.state.state import SweepState
from sweep.store.directory import SweepDir
from sweep.store.journal import JournalReader
from sweep.store.sweep import open_sweep
from tests.support import prepared

EventT = TypeVar("EventT", bound=Event)

SWEEP = INSTALLED = [sys.executable, "-m", "sweep.cli.main"]
"""how a command is started; a test may put another program here"""


def start(*arguments, env=None, cwd=None, output=subprocess.DEVNULL, prefix=()):
    """A `sweep` command in the background. ``prefix``: a command that becomes this one."""
    return subprocess.Popen(
        [*prefix, *SWEEP, *map(str, arguments)],
        env={**os.environ, **(env or {})},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )


def run(*arguments, env=None, cwd=None, timeout=300, user=None):
    """A `sweep` command to its end. ``user``: another Unix user, as whom root runs it."""
    words, environment = [*map(str, arguments)], {**os.environ, **(env or {})}
    fork = prepared.server().run if SWEEP is INSTALLED else None
    done = fork(words, environment, Path(cwd or Path.cwd()), timeout, user) if fork else None
    assert done or user is None, "only a forked command can become another user"
    return done or subprocess.run(
        [*SWEEP, *words],
        env=environment,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def succeeds(*arguments, **settings):
    """The same, which must exit with 0."""
    done = run(*arguments, **settings)
    assert done.returncode == 0, done.stderr
    return done


def launch_words(directory, grid, *options, executor="local"):
    """Write the grid to a file there; the words that launch it, to the directory `s` beside the file."""
    path = Path(directory) / "grid.yaml"
    path.write_text(grid)
    return "launch", path, "--dir", path.with_name("s"), "--executor", executor, "--yes", *options


def launching(directory, grid, *options, executor="local", **settings):
    return start(*launch_words(directory, grid, *options, executor=executor), **settings)


def launch(directory, grid, *options, executor="local", **settings):
    return run(*launch_words(directory, grid, *options, executor=executor), **settings)


def launched(directory, grid, *options, executor="local", **settings):
    return succeeds(*launch_words(directory, grid, *options, executor=executor), **settings)


def plug_in(folder, name, value, code=None, group="sweep.workloads"):
    """What pip would write of an entry point, and the code of its module: the folder on PYTHONPATH has it installed."""
    info = folder / f"{name}-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")
    if code:
        (folder / f"{value.partition(':')[0]}.py").write_text(code)


def state_of(directory) -> SweepState:
    sweep_state = SweepState()
    sweep_state.apply_all(JournalReader(SweepDir(Path(directory))).new_events())
    return sweep_state


def events_of(directory, kind: type[EventT]) -> list[EventT]:
    """The events of one kind, oldest first; the records in them with all columns."""
    reader = JournalReader(SweepDir(Path(directory)), decode=decoder(dict))
    return [event for event in reader.new_events() if isinstance(event, kind)]


def records_of(directory) -> list[dict[str, Any]]:
    """The records, oldest first."""
    return [event.record for event in events_of(directory, Recorded)]


def leader_pids(directory):
    """The processes that lead a pilot of this sweep now."""
    pids = []
    for path in (Path(directory) / "pilots").glob("*/started"):
        try:
            pid = json.loads(path.read_text())["pid"]
            words = psutil.Process(pid).cmdline()
        except (psutil.Error, OSError, ValueError):
            continue
        if any(str(directory) in word for word in words) or any("submitit" in word for word in words):
            pids.append(pid)
    return pids


def marked_processes(directory):
    """Every living process with the token of one of this sweep's pilots, as text."""
    return processes_of(json.loads(SweepDir(Path(directory)).provenance.read_text())["sweep_id"])


def processes_of(sweep_id):
    """The same by the sweep's id, for a directory that is no longer there."""
    found = []
    for process in psutil.process_iter():
        try:
            mark = process.environ().get("SWEEP_PILOT", "")
            if mark.startswith(sweep_id) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {' '.join(process.cmdline())[:600]}")
        except (psutil.Error, OSError):
            continue
    return found


def wait_until_unmarked(directory, timeout_s=60.0):
    """The processes left after the sweep had time to end them; empty on success."""
    deadline = time.monotonic() + timeout_s
    while (left := marked_processes(directory)) and time.monotonic() < deadline:
        time.sleep(0.5)
    return left


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def assert_each_run_measured_once(directory):
    """The invariants of a sweep that is done: one ok per run, one record per attempt, one claim per attempt."""
    sweep = open_sweep(Path(directory))
    records = records_of(directory)
    ok = Counter(record["run_id"] for record in records if record["outcome"] == "ok")
    assert ok == Counter({planned.run_id: 1 for planned in sweep.runs})
    per_attempt = Counter((record["run_id"], record["attempt"]) for record in records)
    assert set(per_attempt.values()) == {1}
    claims = {path.name for path in sweep.directory.claims.iterdir() if not path.name.startswith(".")}
    assert claims == {f"{run_id}.{attempt}" for run_id, attempt in per_attempt}
    sweep_state = state_of(directory)
    assert not [pilot.name for pilot in sweep_state.pilots.values() if pilot.open]
    return records


SIMULATED = {"workload": "simulated", "models": ["tiny-1M"], "strategy": "prune", "nodes": 1}
SIMULATED |= {"sequence_length": 64, "global_batch": 4096, "dtype": "fp32"}
SITE = {"gpu": "cpu", "gpus_per_node": 2, "pilot_time": "10m"}
ONE_LAYOUT = {"tp": 1, "pp": 1, "zero": 0, "micro_batch_size": 1}
EIGHT = {"num_layers": 2, "hidden_size": 64, "num_heads": 8, "intermediate_size": 128, "vocab_size": 512}
"""a model whose heads go to up to eight ranks"""


def simulated(site=None, **keys):
    """A grid of the simulated workload with these keys. ``site``: what its site has beside a few simulated GPUs."""
    return yaml.safe_dump({**SIMULATED, **keys, "site": {**SITE, **(site or {})}}, sort_keys=False)


def slow(step_s=0.5, nodes=1, pilot_time="10m"):
    """A grid of four runs, each of seconds."""
    keys = {"micro_batch_size": [1, 2, 4, 8], "iterations": 5, "params": {"step_s": step_s}}
    return simulated({"pilot_time": pilot_time, "poll_interval_s": 1}, nodes=nodes, **keys)


def wait_for(condition, timeout_s=60, output=lambda: ""):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"timed out; {output()}"
        time.sleep(0.1)


def running_attempt(directory, for_s=0.0):
    """Whether an attempt started so long ago or longer, and has not ended."""
    if not (directory / "provenance.json").exists():
        return False
    attempts = [a for run in state_of(directory).runs.values() for a in run.attempts.values()]
    return any(a.outcome is None and a.started_at and time.time() - a.started_at > for_s for a in attempts)


def output_of(folder) -> str:
    """What a launcher wrote to `launch.out` there, and the pilots of its sweep beside it."""
    pilots = (folder / "s" / "pilots").glob("*/*")
    files = [folder / "launch.out", *sorted(path for path in pilots if path.name in ("stderr", "agents.log"))]
    return "\n".join(f"{path}:\n{path.read_text(errors='replace')[-3000:]}" for path in files if path.exists())
