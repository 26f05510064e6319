"""Readers of a host: limits, file systems, clock, processors, adapters, software. Standard library; JSON values out.

Readers of accelerators: what nvidia-smi prints, as it is. A driver that hangs ends at the time limit.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from bench_workloads.checks.reading import output
from bench_workloads.interpreter import INSTALLED_ONLY

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
SYS_ADAPTERS = Path("/sys/class/infiniband")
PORT_FILES = ("state", "phys_state", "rate", "link_layer")
CGROUPS = Path("/sys/fs/cgroup")
LIMIT_S = 14.0
PACKAGES = ("torch", "numpy", "triton", "transformer-engine", "flash-attn", "apex")


def memlock() -> dict[str, Any]:
    """The soft limit of locked memory, of this process; None: unlimited."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return {"bytes": None if soft == resource.RLIM_INFINITY else soft}


def shared_memory() -> dict[str, Any]:
    """Room in the shared memory's file system, and of which kind that is."""
    place = SHARED_MEMORY.resolve()  # a link to /run/shm on some systems
    return {**_room(place), "filesystem": file_system(place, Path("/proc/mounts").read_text())}


def scratch() -> dict[str, Any]:
    """Where temporary files go: a file of one block can be written there, and the room that is left."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"\0" * 4096)
        file.flush()
        return _room(Path(file.name).parent)


def clock() -> float:
    """Unix seconds by this node's clock."""
    return time.time()


def software() -> dict[str, str]:
    """Versions that every node must share; nothing is imported."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def kernel() -> dict[str, str]:
    """Kernel, machine and C library."""
    return {"kernel": platform.release(), "machine": platform.machine(), "libc": " ".join(platform.libc_ver())}


def nccl_variables() -> dict[str, str]:
    """What this process' environment sets for NCCL, gloo and UCX."""
    return {k: v for k, v in os.environ.items() if k.startswith(("NCCL_", "GLOO_", "UCX_", "FI_", "OMPI_MCA_"))}


def processors() -> dict[str, Any]:
    """CPUs that the process may use, those of the machine, a cgroup's quota in CPUs (None: none that is shown)."""
    return {
        "allowed": len(os.sched_getaffinity(0)),
        "online": os.cpu_count(),
        "cgroups": CGROUPS.is_dir() and any(CGROUPS.iterdir()),
        "quota_cpus": quota_cpus(Path("/proc/self/cgroup").read_text(), CGROUPS),
    }


def adapters() -> list[dict[str, Any]]:
    """RDMA ports: the files of each, as they are."""
    rows = []
    for device in sorted(SYS_ADAPTERS.iterdir()) if SYS_ADAPTERS.is_dir() else []:
        for port in sorted((device / "ports").iterdir()):
            files = {name: (port / name).read_text() for name in PORT_FILES if (port / name).is_file()}
            rows.append({"adapter": device.name, "port": int(port.name), "files": files})
    return rows


def torch_import() -> float:
    """Seconds of `import torch` in a fresh interpreter."""
    return _seconds([sys.executable, "-c", f"{INSTALLED_ONLY}; import torch"])


def file_system(path: Path, mounts: str) -> str:
    """The kind of file system that holds the path, by the text of /proc/mounts."""
    found = ("", "unknown")
    for line in mounts.splitlines():
        _, point, kind, *_ = line.split(" ")
        inside = path == Path(point) or Path(point) in path.parents
        if inside and len(point) >= len(found[0]):
            found = (point, kind)
    return found[1]


def quota_cpus(groups: str, root: Path) -> float | None:
    """The least CPU quota of the process' cgroup and those above it, by the text of /proc/self/cgroup.

    cgroup v2: "0::/path" and its cpu.max, "200000 100000"; v1: cpu.cfs_quota_us over cpu.cfs_period_us.
    """
    found = []
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = root / controllers if controllers else root
        own = base / path.lstrip("/")
        for folder in (own, *own.parents):
            if folder != base and base not in folder.parents:
                break
            found += _quota(folder)
    return min(found, default=None)


def _quota(folder: Path) -> list[float]:
    if (folder / "cpu.max").is_file():
        quota, period = (folder / "cpu.max").read_text().split()
        return [] if quota == "max" else [int(quota) / int(period)]
    if (folder / "cpu.cfs_quota_us").is_file():
        quota_us = int((folder / "cpu.cfs_quota_us").read_text())
        return [] if quota_us < 0 else [quota_us / int((folder / "cpu.cfs_period_us").read_text())]
    return []


def _room(path: Path) -> dict[str, Any]:
    found = os.statvfs(path)
    return {"free_bytes": found.f_bavail * found.f_frsize, "total_bytes": found.f_blocks * found.f_frsize}


def nvidia_smi() -> str | bool:
    """The whole of ``nvidia-smi -q``; false where it is not installed."""
    return output(["nvidia-smi", "-q"], LIMIT_S) if shutil.which("nvidia-smi") else False


def nvidia_smi_nvlink() -> str:
    """``nvidia-smi nvlink --status``: each link's rate."""
    return output(["nvidia-smi", "nvlink", "--status"], LIMIT_S)


def answer_time() -> float:
    """Seconds until nvidia-smi has listed the GPUs."""
    return _seconds(["nvidia-smi", "-L"])


def _seconds(command: list[str]) -> float:
    began = time.monotonic()
    output(command, LIMIT_S)
    return round(time.monotonic() - began, 2)
