"""Tier ``node``: what one node states about itself, without other nodes. Under 30 s; the quick ones under 5 s.

Most checks are those of Primus' node smoke test and of NVIDIA Health Validation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from sweep.checks import accelerators as gpu
from sweep.checks.check import WHETHER_GPUS, Check, Finding, Json, Rule, Stated, Verdict, applicable
from sweep.checks.expectation import gpu_of
from sweep.checks.rules import at_least, at_most, judged, number_of, quantity, rows_of, shown, values_of
from sweep.checks.tools import port_of_sys

HOST = "bench_workloads.checks.host"
SMI = "bench_workloads.checks.host:nvidia_smi"
LINKS = "bench_workloads.checks.host:nvidia_smi_nvlink"
GIB = 2.0**30
MEMLOCK_BYTES = 32 * GIB
SHARED_MEMORY_BYTES = 8 * GIB
MEMORY_FILE_SYSTEMS = ("tmpfs", "devtmpfs")
"""where /dev/shm is a directory of /dev itself, it is in the kernel's devtmpfs: memory as well"""
SCRATCH_BYTES = 1 * GIB
"""for logs, compiled code and NCCL dumps of a pilot"""
CLOCK_S = 30.0
"""at which Primus warns"""
SMI_S = 5.0
"""beyond which Primus fails"""
IMPORT_S = 10.0
"""a warning only: seconds of each pilot's start; about 2 from a local disk"""


def memlock(value: Json, stated: Stated) -> Finding:
    """RDMA pins memory: unlimited, or 32 GiB. Without RDMA (cpu) little is needed."""
    limit = values_of(value).get("bytes")
    if limit is None:
        return Finding(verdict=Verdict.OK, found="unlimited", expected="at least 32 GiB")
    bytes_ = number_of(limit)
    verdict = Verdict.OK if bytes_ >= MEMLOCK_BYTES else Verdict.BELOW_FLOOR
    if verdict.unfit and stated.gpu == "cpu" and bytes_ >= 64 * 1024:
        # gloo pins nothing: Linux' own defaults (64 KiB, 8 MiB since 5.16) are no defect where no RDMA is used
        verdict = Verdict.WARNING
    return Finding(verdict=verdict, found=quantity(bytes_, "B"), expected="unlimited or at least 32 GiB", number=bytes_)


def shared_memory(value: Json, _: Stated) -> Finding:
    """NCCL and data loaders exchange data through a tmpfs with room for it."""
    free, total = number_of(value, "free_bytes"), number_of(value, "total_bytes")
    kind = values_of(value).get("filesystem")
    enough = min(SHARED_MEMORY_BYTES, 0.5 * total)
    found = f"{quantity(free, 'B')} free of {quantity(total, 'B')}, {kind}"
    verdict = Verdict.OK if free >= enough and kind in MEMORY_FILE_SYSTEMS else Verdict.BELOW_FLOOR
    if total < SHARED_MEMORY_BYTES and not verdict.unfit:
        verdict = Verdict.WARNING
    return Finding(verdict=verdict, found=found, expected="tmpfs, half of it or 8 GiB free", number=free)


def clock(value: Json, stated: Stated) -> Finding:
    """The node's clock lies between the leader's question and its answer, give or take 30 s."""
    now = number_of(value)
    if stated.asked_at is None or stated.answered_at is None:
        raise ValueError("the leader's own time is not known")
    skew = max(stated.asked_at - now, now - stated.answered_at, 0.0)
    return judged(skew <= CLOCK_S, f"{skew:.0f} s off", f"within {CLOCK_S:.0f} s", number=skew)


def adapters(value: Json, stated: Stated) -> Finding:
    """Every RDMA port is active at its full rate; an accelerator's node has at least one."""
    rows = [
        port_of_sys(str(row["adapter"]), int(number_of(row, "port")), dict(row["files"]))  # type: ignore[arg-type]
        for row in rows_of(value)
    ]
    if not rows:
        verdict = Verdict.OK if stated.gpu == "cpu" or stated.nodes < 2 else Verdict.UNKNOWN
        return Finding(verdict=verdict, found="no RDMA adapter", expected="adapters, where nodes exchange data by RDMA")
    up = [row for row in rows if row.get("state") == "Active"]
    rates = [number_of(row, "gbit_per_s") for row in up]
    slow = [f"{r['adapter']} {r['gbit_per_s']} Gb/s" for r in up if number_of(r, "gbit_per_s") < max(rates)]
    down = [
        f"{row['adapter']} port {row['port']} {row.get('state')}, {row.get('physical_state')}"
        for row in rows
        if row.get("state") != "Active" and row.get("link_layer") != "Ethernet"
    ]
    found = f"{len(up)} active, {max(rates, default=0):g} Gb/s"
    if not up and (stated.gpu == "cpu" or stated.nodes < 2):
        # RDMA-capable Ethernet adapters that nothing uses
        return Finding(verdict=Verdict.WARNING, found=found, expected="an active port, where nodes use RDMA")
    if down or not up:
        return Finding(verdict=Verdict.BELOW_FLOOR, found="; ".join([found, *down]), expected="all ports active")
    needed = (gpu_of(stated.gpu).network_bytes_per_s or 0) * stated.gpus_per_node * 8 / 1e9
    expected = f"{needed:g} Gb/s in all by the GPU's kind" if needed else ""
    verdict = Verdict.WARNING if slow or sum(rates) < needed else Verdict.OK
    return Finding(verdict=verdict, found="; ".join([found, *slow]), expected=expected)


def affinity(value: Json, _: Stated) -> Finding:
    """A step of the whole node has all of its processors."""
    given, total = number_of(value, "allowed"), number_of(value, "online")
    return judged(given >= total, f"{given:.0f} of {total:.0f} CPUs", "all of the node", otherwise=Verdict.WARNING)


def quota(value: Json, _: Stated) -> Finding:
    """A CPU quota of a cgroup below the processors that the process may use throttles it without a trace."""
    allowed = number_of(value, "allowed")
    limit, expected = values_of(value).get("quota_cpus"), "none, or all CPUs"
    if values_of(value).get("cgroups") is False:
        raise ValueError("the cgroups are not mounted here")
    if limit is None:
        return Finding(verdict=Verdict.OK, found="none", expected=expected)
    cpus = number_of(limit)
    return judged(cpus >= allowed, f"{cpus:g} of {allowed:.0f} CPUs", expected, number=cpus)


def variables(value: Json, _: Stated) -> Finding:
    """What the environment sets for the network's libraries."""
    found = ", ".join(f"{name}={text}" for name, text in sorted(values_of(value).items()))
    return Finding(verdict=Verdict.OK, found=found or "none")


def check(name: str, reader: str, evaluate: Rule, remedy: str, **more: Any) -> Check:
    """A check of this tier."""
    return Check(name=name, tier="node", reader=reader, evaluate=evaluate, remedy=remedy, **more)


quick = partial(check, quick=True)


def of_gpus(name: str, evaluate: Rule, remedy: str, reader: str = SMI, **more: Any) -> Check:
    """A check of a node's GPUs."""
    return check(name, reader, evaluate, remedy, gpu_only=True, **more)


quick_of_gpus = partial(of_gpus, quick=True)


NODE: tuple[Check, ...] = (
    quick(
        "memlock",
        f"{HOST}:memlock",
        memlock,
        "raise `ulimit -l` for Slurm's daemons (slurmd.service: LimitMEMLOCK=infinity)",
        of_site=True,
    ),
    quick(
        "shared memory",
        f"{HOST}:shared_memory",
        shared_memory,
        "remove files that ended jobs left in /dev/shm, or mount a larger tmpfs there (in a container: --shm-size)",
        of_site=True,
    ),
    quick(
        "scratch",
        f"{HOST}:scratch",
        at_least(SCRATCH_BYTES, "B", "free_bytes"),
        "free space in the site's `scratch` (or TMPDIR)",
    ),
    quick("clock", f"{HOST}:clock", clock, "start the time service (chronyc tracking)"),
    quick(
        "software",
        f"{HOST}:software",
        shown,
        "install the same environment on all nodes, or use one container",
        majority=True,
    ),
    quick("kernel", f"{HOST}:kernel", shown, "boot the same image on all nodes", majority=True, remark=True),
    quick(
        "NCCL variables",
        f"{HOST}:nccl_variables",
        variables,
        "set them in the site's `env`, so that all nodes have the same",
        majority=True,
    ),
    quick("CPU quota", f"{HOST}:processors", quota, "remove the cgroup's cpu.max, or ask for all CPUs", of_site=True),
    quick("CPUs", f"{HOST}:processors", affinity, "ask for whole nodes (--exclusive) with all CPUs"),
    quick("adapters", f"{HOST}:adapters", adapters, "reseat or replace the cable; `ibstat`, `ibdiagnet`", of_site=True),
    quick_of_gpus(
        WHETHER_GPUS,
        gpu.present,
        "take the node out of the partition, or install its driver; `gpu: cpu` in the site where nodes have no GPUs",
        of_site=True,
    ),
    quick_of_gpus(
        "GPU count", gpu.count, "ask for all GPUs (site: sbatch: [--gres=gpu:N]); reset or replace the missing one"
    ),
    quick_of_gpus("GPU kind", gpu.kind, "state the GPU's kind in the site, or constrain the nodes", of_site=True),
    quick_of_gpus(
        "GPU memory in use",
        gpu.each(gpu.memory_in_use, "under 2 GiB"),
        "end the processes that hold it: `nvidia-smi`, `fuser -v /dev/nvidia*`",
    ),
    quick_of_gpus(
        "ECC", gpu.each(gpu.ecc, "no uncorrectable error"), "drain the node; reset the GPU, replace it if errors return"
    ),
    quick_of_gpus(
        "remapped rows",
        gpu.each(gpu.remapped_rows, "none pending or failed"),
        "reset the GPU; replace it where the remapping failed",
    ),
    quick_of_gpus("throttling", gpu.each(gpu.throttled, "none by heat or power brake"), "check cooling and power"),
    quick_of_gpus("compute mode", gpu.each(gpu.compute_mode, "not Prohibited"), "nvidia-smi -c 0"),
    quick_of_gpus("MIG", gpu.each(gpu.mig, "off"), "nvidia-smi -mig 0", of_site=True),
    quick_of_gpus(
        "driver",
        gpu.driver,
        "install the same driver and firmware on all nodes; boards of several batches may have several VBIOS versions",
        majority=True,
        remark=True,
    ),
    of_gpus("PCIe width", gpu.each(gpu.pcie, "all lanes"), "reseat the GPU; drain the node"),
    of_gpus("power cap", gpu.each(gpu.power_cap, "the default", Verdict.WARNING), "nvidia-smi -pl DEFAULT, as root"),
    of_gpus("persistence", gpu.each(gpu.persistence, "on", Verdict.WARNING), "start nvidia-persistenced"),
    of_gpus("fabric", gpu.each(gpu.fabric, "completed"), "restart nvidia-fabricmanager"),
    of_gpus("NVLinks", gpu.links, "drain the node; `nvidia-smi nvlink -e` shows the errors of each link", reader=LINKS),
    of_gpus(
        "GPU answer time",
        at_most(SMI_S, "s"),
        "look for Xid lines in the kernel's log; start nvidia-persistenced",
        reader="bench_workloads.checks.host:answer_time",
    ),
    check(
        "torch import",
        f"{HOST}:torch_import",
        at_most(IMPORT_S, "s", verdict=Verdict.WARNING),
        "put the environment on fast storage, or into a container image",
    ),
)
"""all checks of the tier, in the order in which they are shown"""


def node_checks(more: Sequence[Check], gpu: str) -> list[Check]:
    """Those that mean something on this kind. ``more``: checks of other packages."""
    return applicable([*NODE, *(check for check in more if check.tier == "node")], Stated(gpu=gpu))
