"""Processes on the GPU: the fork server of the ranks never touches it, and nothing outlives a killed sweep."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import psutil

from benchmarks.gpu_acceptance.parts import Check, Result, Setting
from benchmarks.gpu_acceptance.sweeps import SWEEP, cancel, wait_for

_LONG = """
name: acceptance-killed
models: [tiny-1M]
nodes: [1]
sequence_length: 64
global_batch: 256
compile: false
iterations: 100000
params: {{cpu_memory: false, threads: 1}}
site: {{name: acceptance, gpu: {gpu}, gpus_per_node: 1, max_local_ranks: 1, pilot_time: 30m}}
"""


def run(setting: Setting) -> Result:
    """Two forks with CUDA from one fork server, then a sweep whose launcher and leader are killed while a rank runs."""
    result = Result()
    _fork_twice(setting, result)
    _kill(setting, result)
    return result


def gpu_processes() -> set[int]:
    """Processes that hold a context on any GPU, as nvidia-smi lists them; those that are gone already do not count."""
    command = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader,nounits"]
    try:
        text = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return set()
    return {int(line) for line in text.split() if line.isdigit() and psutil.pid_exists(int(line))}


def foreign_processes() -> list[str]:
    """The names of those processes: what another program does on the GPU, the acceptance would measure."""
    names = []
    for pid in sorted(gpu_processes()):
        with contextlib.suppress(psutil.Error):
            names.append(f"process {pid} ({psutil.Process(pid).name()})")
    return names


def end_sweeps(out: Path) -> None:
    """Cancel the sweeps of earlier parts that still have processes."""
    for path in sorted(out.glob("*/provenance.json")):
        if of_sweep(path.parent):
            cancel(path.parent)


def _fork_twice(setting: Setting, result: Result) -> None:
    from sweep.contract import Layout
    from tests.support.ranks.harness import ForkServer, a_run

    before = gpu_processes()
    fork_server = ForkServer("transformer")
    try:
        held = gpu_processes() - before
        ranks = [fork_server.attempt(a_run(Layout(), dtype="bf16"))[0] for _ in range(2)]
        threads, left = fork_server.threads, gpu_processes() - before
    finally:
        fork_server.close()
    result.checks += [
        Check("the fork server has one thread", threads == 1, str(threads)),
        Check("two ranks forked from it, one after another, measure", all(rank.exit == 0 for rank in ranks)),
        Check(
            "the fork server has no context", not held and not left if setting.gpu != "cpu" else None, f"{held | left}"
        ),
    ]
    result.facts["devices"] = [
        message.get("device") for rank in ranks for message in rank.messages if "device" in message
    ]


def _kill(setting: Setting, result: Result) -> None:
    directory = setting.directory / "killed"
    path = directory.with_suffix(".yaml")
    path.write_text(_LONG.format(gpu=setting.gpu))
    before = gpu_processes()
    child = subprocess.Popen(
        [*SWEEP, "launch", str(path), "--dir", str(directory), "--executor", "local", "--yes"],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    iterating = wait_for(lambda: _at_work(setting, directory, before), 60)
    result.checks.append(Check("a rank works", iterating))
    for pid in [*_leaders(directory), child.pid]:
        os.kill(pid, signal.SIGKILL)
    child.wait(10)
    gone = wait_for(lambda: not of_sweep(directory) and not gpu_processes() - before, 40)
    result.checks.append(Check("launcher and leader killed: no process of the sweep is left after 40 s", gone))


def _at_work(setting: Setting, directory: Path, before: set[int]) -> bool:
    """Whether a rank iterates: it holds a context; on a CPU, an attempt was claimed."""
    claimed = any((directory / "claims").glob("*"))
    return claimed and (setting.gpu == "cpu" or bool(gpu_processes() - before))


def of_sweep(directory: Path) -> list[psutil.Process]:
    """Processes of the sweep in that directory: leaders and agents name it, ranks are their descendants by mark."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ", "status"]):
        words = " ".join(process.info["cmdline"] or [])
        values = " ".join((process.info["environ"] or {}).values())
        if process.pid != os.getpid() and process.info["status"] != psutil.STATUS_ZOMBIE:
            found += [process] * (str(directory) in words or str(directory) in values)
    return found


def _leaders(directory: Path) -> list[int]:
    return [p.pid for p in of_sweep(directory) if "sweep.pilot.leader" in " ".join(p.info["cmdline"] or [])]
