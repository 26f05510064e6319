"""Processes of this node: marks, ancestry, activity, signals, and stale processes on the job's GPUs.

The few calls that only Linux has live here. nvidia-smi's output is not verified on hardware.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import re
import resource
import shutil
import signal
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path

import psutil

from bench_workloads.checks.reading import answer

PILOT_MARK = "SWEEP_PILOT"
"""Environment variable that every process of a pilot carries from exec on; its value is the pilot's token."""
NODE_MARK = "SWEEP_NODE"
"""The same for the node's name: several simulated nodes of one machine share a token."""

_PILOT_PREFIX, _NODE_PREFIX = (f"\0{name}=".encode() for name in (PILOT_MARK, NODE_MARK))
_LIMIT = re.compile(rb"^Max realtime timeout +(\d+) +(\d+) ", re.MULTILINE)
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_MADV_COLLAPSE = 25


ACTIVITY_CHECK_S = 5.0
"""it reads /proc for each process of a rank: no limit that depends on activity is shorter than 60 s by default"""
ACTIVITY_SHARE = 0.1
"""fraction of one core: below it, waiting loops and pings of libraries"""
ACTIVITY_BYTES = 1 << 20
NVIDIA_SMI_S = 10.0
"""nvidia-smi hangs where the driver does: then nothing is known of the GPUs. NVIDIA's documentation on driver
persistence has 1 to 3 s for a GPU that nothing holds"""
GPU_POLL_S = 0.5
"""how often it is asked while GPUs are not free yet, in GPU_WAIT_S"""
START_TIME_ERROR_S = 1.0
"""psutil computes start times from the boot time, which is known to the second"""
SHARING_SERVICE = "nvidia-cuda-mps"
"""MPS's server runs as its user, from the first client on: beyond the attempt, as intended"""
LEFT_MIB = 2048.0
"""memory of a GPU beyond what was in use at first, above which a process that is not listed holds it: contexts of
monitoring tools take less"""
_first_mib: dict[str, float] = {}
"""memory in use of each GPU when it was first looked at, before any attempt"""
_uuids: dict[frozenset[str], frozenset[str]] = {}
"""those of the allocated GPUs, once nvidia-smi has answered"""
_UUID = re.compile(r"\(UUID: ((?:GPU|MIG)-[^)\s]+)\)")


def become_subreaper() -> None:
    """Orphans among our descendants become our children, so that one that daemonises still comes back to be killed."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """SIGKILL for this process when its parent dies; at once if the parent is dead already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(137)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


@functools.cache
def collapse_pages() -> None:
    """Map this process's own memory in huge pages, once: a fork copies an entry for each page, and an exit drops it.
    From Linux 6.1 on (man 2 madvise); before, nothing happens.
    """
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for addresses, permissions, _, _, _, *name in map(str.split, Path("/proc/self/maps").read_text().splitlines()):
        begin, end = (int(text, 16) for text in addresses.split("-"))
        if "w" in permissions and name in ([], ["[heap]"]):
            madvise(begin, end - begin, _MADV_COLLAPSE)


def present() -> frozenset[tuple[int, int]]:
    """This machine's processes: the number of each, and of its folder in /proc, which no later process has again."""
    with os.scandir("/proc") as entries:
        return frozenset((int(entry.name), entry.inode()) for entry in entries if entry.name.isdecimal())


def descendants(spare: Iterable[int] = (), before: Set[tuple[int, int]] = frozenset()) -> list[psutil.Process]:
    """Every living descendant of this process, except `spare` (their children are included), that was not there
    ``before`` (of ``present``): the others need no look, and a node may have thousands.
    """
    spared, children = frozenset(spare), defaultdict(list)
    for pid, _ in present() - before:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 (half the time)
            children[int(file.read().rpartition(b")")[2].split()[1])].append(pid)
    found, parents = [], [os.getpid(), *spared]
    while parents:
        own = children.pop(parents.pop(), [])
        parents += own
        found += own
    return _living(set(found) - spared)


def mark_descendants(environment: Mapping[str, str]) -> None:
    """Mark this process and all that descend from it for good, with the marks of this environment.

    One may empty its environment and leave its parent and session. It keeps its limits, of which one limits nothing
    here: the CPU time of real-time threads between two system calls (RLIMIT_RTTIME), set to over 30,000 years.
    """
    with contextlib.suppress(OSError, ValueError):  # a lower one is set already
        resource.setrlimit(resource.RLIMIT_RTTIME, _limits(*(environment.get(m, "") for m in (PILOT_MARK, NODE_MARK))))


def _limits(token: str, node: str) -> tuple[int, int]:
    """The soft limit, for the node, and the hard one, for the token; in microseconds."""
    soft, hard = (int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big") for text in (node, token))
    return (1 << 60) + soft, (1 << 61) + hard


def _limits_of(pid: int) -> tuple[int, int]:
    """Those of a process; 0 where it has ended, or they are unlimited."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/limits", "rb") as file:  # noqa: PTH123 (half the time)
        found = _LIMIT.search(file.read())
        return (int(found[1]), int(found[2])) if found is not None else (0, 0)
    return 0, 0


def carrying(
    tokens: Iterable[str], node: str | None = None, before: Set[tuple[int, int]] = frozenset()
) -> list[psutil.Process]:
    """This user's living processes that carry one of the tokens, and the node's mark where one is given; without those
    that were there ``before`` (of ``present``).
    """
    wanted, pids = frozenset(tokens), [pid for pid, _ in present() - before]
    by_environment = {pid for pid, (token, at) in _marked(pids) if token in wanted and node in (None, at)}
    softs, hards = {None if node is None else _limits("", node)[0]}, {_limits(token, "")[1] for token in wanted}
    by_limits = (pid for pid in pids if (found := _limits_of(pid))[1] in hards and softs & {None, found[0]})
    return _mine(by_environment.union(by_limits))


def tokens_of_sweep(prefix: str) -> set[str]:
    """The tokens with this prefix that this user's living processes on this node carry."""
    return {token for pid, (token, _) in _marked(psutil.pids()) if token.startswith(prefix) and _mine([pid])}


def _marked(pids: Iterable[int]) -> Iterator[tuple[int, tuple[str, str]]]:
    """Pid, token and node of those that carry a pilot's mark and that may be read, except this one."""
    for pid in pids:
        with contextlib.suppress(psutil.Error, OSError):
            with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 (half the time)
                data = b"\0" + file.read()
            token, node = (data.partition(prefix)[2].partition(b"\0")[0] for prefix in (_PILOT_PREFIX, _NODE_PREFIX))
            if token and pid != os.getpid():
                yield pid, (os.fsdecode(token), os.fsdecode(node))


def _mine(pids: Iterable[int]) -> list[psutil.Process]:
    """The living processes of this user among these pids."""
    found = []
    for process in _living(pids):
        with contextlib.suppress(psutil.Error):
            if process.uids().real == os.getuid():
                found.append(process)
    return found


def _living(pids: Iterable[int]) -> list[psutil.Process]:
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def describe(process: psutil.Process) -> str:
    """One line for a message: pid, name, state. In "disk-sleep" no signal reaches it, until the node is rebooted."""
    try:
        return f"pid {process.pid} {process.name()} ({process.status()})"
    except psutil.Error:
        return f"pid {process.pid}"


class Activity:
    """Whether a process works: compares each poll with the previous one."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[float, float, int]] = {}

    def busy(self, pid: int) -> bool:
        """Did the rank, or a compiler or loader that it started, work since the last poll? False at the first."""
        now, before = _work(pid), self._seen.get(pid)
        self._seen[pid] = now
        if before is None:
            return False
        elapsed_s, cpu_s, size = (a - b for a, b in zip(now, before, strict=True))
        return cpu_s >= ACTIVITY_SHARE * elapsed_s or size >= ACTIVITY_BYTES


def _work(pid: int) -> tuple[float, float, int]:
    """(now, CPU seconds, bytes read and written) of the process and its living descendants."""
    seconds, size = 0.0, 0
    with contextlib.suppress(psutil.Error):
        rank = psutil.Process(pid)
        for process in (rank, *rank.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                seconds += times.user + times.system + times.children_user + times.children_system
                counters = process.io_counters()
                size += counters.read_bytes + counters.write_bytes
    return time.monotonic(), seconds, size


def allocated(environment: Mapping[str, str]) -> frozenset[str] | None:
    """Indices or UUIDs of the GPUs of this job; None where they are unknown: then none is checked."""
    for name in ("CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"):
        names = frozenset(part.strip() for part in environment.get(name, "").split(",") if part.strip())
        if names:
            return names
    return None


def left_on_gpus(wait_s: float, since: float) -> list[str]:
    """Processes of an attempt that began at `since` (unix seconds) on the allocated GPUs after `wait_s`, as text.

    In a container with its own process numbers nvidia-smi lists none: then by the memory in use. Empty where there is
    no nvidia-smi. Processes that were there before, and those of other users and of the sharing service (MPS), are not
    the attempt's: they say nothing about the node.
    """
    ours = allocated(os.environ)
    if ours is None or shutil.which("nvidia-smi") is None:
        return []
    deadline = time.monotonic() + wait_s
    while True:
        listed = _processes(ours)
        left = [f"pid {pid} on GPU {uuid}" for pid, uuid in listed if _of_attempt(pid, since)]
        if not listed:
            grown = {uuid: mib - _first_mib[uuid] for uuid, mib in _mib_in_use(ours).items() if uuid in _first_mib}
            held = "MiB of GPU {} by a process that is not listed"
            left = [f"{mib:.0f} {held.format(uuid)}" for uuid, mib in grown.items() if mib > LEFT_MIB]
        if not left or time.monotonic() >= deadline:
            return left
        time.sleep(GPU_POLL_S)


def note_memory_in_use() -> None:
    """Remember the memory in use of the allocated GPUs. Call it before the first attempt, in a thread: it may hang."""
    ours = allocated(os.environ)
    if ours is not None and shutil.which("nvidia-smi") is not None:
        _first_mib.update(_mib_in_use(ours))


def _mib_in_use(ours: frozenset[str]) -> dict[str, float]:
    _processes(ours)  # fills _uuids
    rows = _rows(_output("--query-gpu=uuid,memory.used", "--format=csv,noheader,nounits"))
    mine = _uuids.get(ours, frozenset())
    if any(uuid.startswith("MIG-") for uuid in mine):
        return {}  # the other parts of the GPU are other jobs'
    return {uuid: float(mib) for uuid, mib in rows if uuid in mine and mib.replace(".", "", 1).isdigit()}


def _processes(ours: frozenset[str]) -> list[tuple[int, str]]:
    if ours not in _uuids:  # one call of nvidia-smi less after each attempt: it takes up to a second
        found = uuids_of(ours, _output("--query-gpu=index,uuid", "--format=csv,noheader"), _output("-L"))
        _uuids.update({ours: found} if found else {})
    uuids = _uuids.get(ours, frozenset())
    rows = _rows(_output("--query-compute-apps=pid,gpu_uuid", "--format=csv,noheader"))
    return [(int(pid), uuid) for pid, uuid in rows if pid.isdigit() and uuid in uuids]


def uuids_of(ours: Iterable[str], gpus: str, devices: str) -> frozenset[str]:
    """The UUIDs under which nvidia-smi lists processes on these devices: of whole GPUs, and of parts (MIG) with theirs.

    `ours`: indices, UUIDs or their beginnings, as CUDA_VISIBLE_DEVICES takes them. `gpus`: nvidia-smi's rows of index
    and UUID. `devices`: what `nvidia-smi -L` prints, with each GPU's MIG devices below it.
    """
    parents: dict[str, str] = {}
    parent = ""
    for line in devices.splitlines():
        if (found := _UUID.search(line)) is not None:
            parent = parent if found[1].startswith("MIG-") else found[1]
            parents[found[1]] = parent
    rows = _rows(gpus)
    known = {uuid for _, uuid in rows} | parents.keys()
    uuids = {uuid for index, uuid in rows if index in ours}
    uuids |= {uuid for uuid in known for name in ours if not name.isdigit() and uuid.startswith(name)}
    return frozenset(uuids | {parents[uuid] for uuid in uuids if uuid in parents})


def _rows(text: str) -> list[tuple[str, str]]:
    pairs = [line.split(",", 1) for line in text.splitlines() if "," in line]
    return [(first.strip(), second.strip()) for first, second in pairs]


def _output(*options: str) -> str:
    return answer(["nvidia-smi", *options], NVIDIA_SMI_S, fails=True)


def _of_attempt(pid: int, since: float) -> bool:
    """Whether a process that nvidia-smi lists may be the attempt's. It may list dead ones."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        ours = process.uids().real == os.getuid() and not process.name().startswith(SHARING_SERVICE)
        return ours and process.create_time() > since - START_TIME_ERROR_S
    return False
