"""The command of a trainer's run, and how to stop it; the versions that it runs with."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import psutil

from bench_workloads.trainers.adapter import Launch
from sweep.contract import Place

_VERSION = "import importlib.metadata as m; print(m.version({!r}))"


def command(launch: Launch, place: Place, port: int, settings: dict[str, Any]) -> list[str]:
    """The arguments of the command: prefix, interpreter, torchrun where one per node is asked for, and the program."""
    further = shlex.split(str(settings["arguments"]))
    words = shlex.split(str(settings["prefix"]))
    if not launch.python:
        return [*words, *launch.program, *further]
    words.append(interpreter(settings))
    if settings["start"] == "node":
        nodes = place.world_size // place.local_world_size
        words += ["-m", "torch.distributed.run", f"--nnodes={nodes}", f"--node-rank={place.node_rank}"]
        words += [f"--nproc-per-node={place.local_world_size}"]
        words += [f"--master-addr={place.master_addr}", f"--master-port={port}"]
    return [*words, *launch.program, *further]


def stop(child: subprocess.Popen[bytes] | None, patience_s: float) -> None:
    """End the trainer and all its child processes: SIGTERM, a bounded wait, SIGKILL."""
    if child is None:
        return
    below: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        below = psutil.Process(child.pid).children(recursive=True)
    if child.poll() is None:
        with contextlib.suppress(OSError):
            child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=patience_s)
    _, left = psutil.wait_procs(below, timeout=0.1)
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    if child.poll() is None:
        child.kill()
        child.wait()


def interpreter(settings: Mapping[str, Any]) -> str:
    """The trainer's Python."""
    return str(settings["python"] or sys.executable)


def versions(settings: dict[str, Any], package: str) -> dict[str, str]:
    """Versions of torch and the trainer's package, from its own interpreter."""
    found = {}
    for name in filter(None, ("torch", package)):
        words = [*shlex.split(str(settings["prefix"])), interpreter(settings), "-c", _VERSION.format(name)]
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=5, check=True)
            found[name] = done.stdout.strip().splitlines()[-1]
    return found
