"""Readers of the login node: Slurm's clients, the shared file system, this host's environment."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_workloads.checks.host import file_system
from bench_workloads.checks.host import nccl_variables as host_nccl_variables
from bench_workloads.checks.reading import COMMAND_S, UnreadableError, answer, output
from bench_workloads.interpreter import INSTALLED_ONLY
from sweep.checks.check import Json
from sweep.executors.executor import PilotRequest
from sweep.inputs.detect import SINFO, parse_config, parse_sinfo
from sweep.inputs.site import Site
from sweep.plugins import EXECUTOR

PROGRAMS = ("sbatch", "srun", "scontrol", "squeue", "sinfo", "scancel")
VERSIONS = """
import importlib.util, pathlib, platform, runpy
found = importlib.util.find_spec("torch")
version = runpy.run_path(str(pathlib.Path(found.submodule_search_locations[0]) / "version.py"))
print(platform.python_version(), version["__version__"], version.get("cuda"))
"""
"""run by the site's Python: what torch states of itself, without the seconds of its import"""
TIMES = 5
"""writes, links and renames are repeated so often: the slowest counts"""


class LoginReaders:
    """The built-in readers of the tier, for one site; each is a method that returns JSON or raises."""

    def __init__(self, site: Site, directory: Path) -> None:
        self._site = site
        self._directory = directory

    def programs(self) -> Json:
        """Slurm's commands with their versions; None: missing."""
        return {name: output([name, "--version"]).strip() if shutil.which(name) else None for name in PROGRAMS}

    def controller(self) -> Json:
        """The controller's answer to a ping and its time."""
        began = time.monotonic()
        answer = output(["scontrol", "ping"], fails=True)
        return {"answer": answer.strip(), "seconds": round(time.monotonic() - began, 3)}

    def config(self) -> Json:
        """``scontrol show config``."""
        return parse_config(output(["scontrol", "show", "config"]))

    def partition(self) -> Json:
        """The site's partition (else the default one) as sinfo lists it."""
        groups = [
            group
            for group in parse_sinfo(output(SINFO))
            if group.partition == self._site.partition or (self._site.partition is None and group.default)
        ]
        if not groups:
            raise UnreadableError(f"sinfo lists no partition {self._site.partition or '(default)'}")
        limit_s = groups[0].time_limit_s
        return {
            "name": groups[0].partition,
            "up": groups[0].up,
            "nodes": sum(group.nodes for group in groups),
            "time_limit": "none" if limit_s is None else f"{limit_s} s",
            "time_limit_s": limit_s,
            "pilot_time_s": self._site.pilot_time,
        }

    def drained(self) -> Json:
        """Nodes that take no job -> why."""
        lines = output(["sinfo", "-h", "-R", "-o", "%N|%T|%E"]).splitlines()
        return {part[0]: f"{part[1]}, {part[2]}" for line in lines if len(part := line.split("|", 2)) == 3}

    def test_only(self) -> Json:
        """What sbatch says of a pilot of one node, without submitting it."""
        request = PilotRequest(token="sweep-doctor", name="p0001", nodes=1, time_limit_s=60)  # noqa: S106
        script = EXECUTOR.find("slurm")(self._site, self._directory).script(request)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SBATCH_")}
        done = subprocess.run(
            ["sbatch", "--test-only"], input=script, capture_output=True, text=True, errors="replace",
            timeout=COMMAND_S, env=environment, check=False,
        )  # fmt: skip
        lines = [line for line in (done.stderr + done.stdout).strip().splitlines() if line]
        return {"accepted": done.returncode == 0, "answer": lines[-1] if lines else f"exit {done.returncode}"}

    def shared_files(self) -> Json:
        """Seconds of the slowest write with fsync, link and rename in the directory of sweeps."""
        times: dict[str, float] = {"write_s": 0.0, "link_s": 0.0, "rename_s": 0.0}
        with tempfile.TemporaryDirectory(dir=self._place(), prefix=".doctor-") as folder:
            for number in range(TIMES):
                first, second, third = (Path(folder) / f"{number}{letter}" for letter in "abc")
                for name, action in (
                    ("write_s", lambda path=first: _write(path)),
                    ("link_s", lambda path=first, other=second: os.link(path, other)),
                    ("rename_s", lambda path=second, other=third: path.rename(other)),
                ):
                    began = time.monotonic()
                    action()
                    times[name] = max(times[name], round(time.monotonic() - began, 5))
        return {**times, "filesystem": file_system(self._place().resolve(), Path("/proc/mounts").read_text())}

    def room(self) -> Json:
        """Bytes and inodes that are left there."""
        found = os.statvfs(self._place())
        return {
            "free_bytes": found.f_bavail * found.f_frsize,
            "free_inodes": found.f_favail,
            "total_inodes": found.f_files,
        }

    def torch(self) -> Json:
        """Versions in the site's Python, and the CUDA version of this host's driver."""
        python = shlex.split(self._site.python) if self._site.python else [sys.executable]
        words = output([*python, "-c", f"{INSTALLED_ONLY}; {VERSIONS}"]).split()
        # None on a host without GPUs, as most login nodes are
        driver = re.search(r"CUDA Version *: *([\d.]+)", answer(["nvidia-smi", "-q"], COMMAND_S))
        return {
            "python": words[0],
            "torch": words[1],
            "cuda": None if words[2] == "None" else words[2],
            "driver_cuda": driver and driver[1],
        }

    def logind(self) -> Json:
        """Whether logind kills a user's processes at logout, and whether this user's may linger."""
        text = answer(["busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1",
                       "org.freedesktop.login1.Manager", "KillUserProcesses"], COMMAND_S)  # fmt: skip
        kills = text.split()[-1] == "true" if text.strip() else None
        user = os.environ.get("USER") or str(os.getuid())
        return {"kill_user_processes": kills, "linger": Path("/var/lib/systemd/linger", user).exists()}

    def nccl_variables(self) -> Json:
        """What this shell and the site set."""
        site = {k: f"{v} (site)" for k, v in self._site.env.items() if k.startswith("NCCL_")}
        return {**{k: f"{v} (shell)" for k, v in host_nccl_variables().items()}, **site}

    def _place(self) -> Path:
        """The nearest directory that exists."""
        path = self._directory.expanduser().absolute()
        return next(each for each in (path, *path.parents) if each.is_dir())


def _write(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b"\0" * 4096)
        file.flush()
        os.fsync(file.fileno())
