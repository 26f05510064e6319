"""What the kernel did on this node during an attempt: its OOM killer, Xid, machine checks, segfaults. Reads only.

Xids come from NVML's events, too, for who may not read the kernel's log.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sweep.errors import log_error

_HARDWARE = re.compile(r"NVRM: Xid|\bMachine check|\bmce:|Hardware Error|EDAC (?:(?!EDAC ).)* UE\b")
_XID = re.compile(r"NVRM: Xid \([^)]{0,60}\): \d{1,6}")
_OF_PROCESS = re.compile(r"(?:Killed process|pid[=: ]|\[)\s{0,8}(\d{1,10})")
_DEATH = re.compile(r"oom-kill:|Out of memory|Killed process|out of memory: Kill|segfault at|trap invalid opcode")
CGROUPS = Path("/sys/fs/cgroup")
# Imported before any run: that takes a free file descriptor
_NVML: Any = importlib.import_module("pynvml") if importlib.util.find_spec("pynvml") else None
MAX_LINES = 20


class KernelWatch:
    """Follows the kernel's log and the memory cgroup's kill counter from its construction on.

    Unexpected kernel output loses the evidence, never the agent.
    """

    def __init__(self, node: str, xids: XidEvents | None = None) -> None:
        """``xids``: NVML's events; None: those of this process."""
        self._node, self._log = node, -1
        self._xids = xids or _xids()
        self._xids_before = len(self._xids.lines)
        self._counter: Path | None = None
        with contextlib.suppress(OSError):  # dmesg_restrict, a container: then only the counter is available
            self._log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._log, 0, os.SEEK_END)
        try:
            self._counter = kill_counter()
        except Exception as error:
            log_error(f"{node}: cannot watch the kernel log: {error!r}")
        self._kills = _kills(self._counter)

    def facts(self, pids: Iterable[int]) -> tuple[str, ...]:
        """The lines that concern these processes, or the node as a whole; empty where they cannot be read."""
        of_ranks, before, now = set(pids), self._kills, _kills(self._counter)
        killed = now - before if before is not None and now is not None else 0
        try:
            lines = [line for line in self._lines() if _concerns(line, of_ranks, any_death=killed > 0)]
        except Exception as error:
            log_error(f"{self._node}: cannot read the kernel log: {error!r}")
            return ()
        known = {found[0] for line in lines if (found := _XID.search(line)) is not None}
        lines += [line for line in self._xids.lines[self._xids_before :] if _XID.findall(line)[0] not in known]
        if killed > 0 and self._counter is not None:
            group = self._counter.parent
            lines.append(f"oom-kill: {killed} processes of the memory cgroup {group} (its {_limit(group)})")
        return tuple(lines[-MAX_LINES:])

    @property
    def sources(self) -> tuple[str, ...]:
        """Which of the sources this user may read: else an Xid is not seen, whatever the GPU does."""
        found = {"kernel log": self._log >= 0, "NVML events": self._xids.followed, "cgroup": self._counter is not None}
        return tuple(name for name, readable in found.items() if readable)

    def close(self) -> None:
        """Close the log."""
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def _lines(self) -> list[str]:
        lines = []
        while self._log >= 0:
            try:
                record = os.read(self._log, 8192).decode(errors="replace")
            except BlockingIOError:
                break
            except BrokenPipeError:  # overwritten before it was read: continue with the next
                continue
            except OSError:
                break
            lines.append(record.partition(";")[2].splitlines()[0] if ";" in record else record)
        return lines


@functools.cache
def _xids() -> XidEvents:
    return XidEvents()


def _concerns(line: str, pids: set[int], *, any_death: bool) -> bool:
    if _HARDWARE.search(line):
        return True
    if not _DEATH.search(line):
        return False
    return any_death or any(int(pid) in pids for pid in _OF_PROCESS.findall(line))


def kill_counter(proc: Path = Path("/proc/self/cgroup"), root: Path = CGROUPS) -> Path | None:
    """The file that counts the OOM kills of this process' memory cgroup (version 1 or 2)."""
    try:
        rows = [line.split(":", 2) for line in proc.read_text().splitlines()]
    except OSError:
        return None
    groups = {name: row[2].lstrip("/") for row in rows if len(row) == 3 for name in row[1].split(",")}
    if "memory" in groups:
        counter = root / "memory" / groups["memory"] / "memory.oom_control"
    elif "" in groups:
        counter = root / groups[""] / "memory.events"
    else:
        return None
    return counter if counter.is_file() else None


def _kills(counter: Path | None) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        if counter is not None:
            rows = (row.split() for row in counter.read_text().splitlines())
            return next((int(value) for name, value in rows if name == "oom_kill"), None)  # none before Linux 4.13
    return None


def _limit(group: Path) -> str:
    for name in ("memory.limit_in_bytes", "memory.max"):
        with contextlib.suppress(OSError):
            return f"limit is {(group / name).read_text().strip()} bytes"
    return "limit is unknown"


WAIT_MS = 1000


class XidEvents:
    """Critical Xids of this node's GPUs as NVML reports them to any user, in a thread: the driver may hang.

    From its construction on. Without NVML's bindings or a driver there are none. Not verified on hardware.
    """

    def __init__(self, nvml: Any = None) -> None:
        """``nvml``: the bindings (nvidia-ml-py, in the torch extra); None: those that are installed."""
        self.lines: list[str] = []
        """as the kernel's log words them, only appended to"""
        self.followed = False
        """NVML reports them for at least one GPU"""
        self._nvml = nvml or _NVML
        if self._nvml is not None:
            threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        nvml = self._nvml
        with contextlib.suppress(Exception):  # no driver, no library, an old binding: the kernel's log is what is left
            nvml.nvmlInit()
            events = nvml.nvmlEventSetCreate()
            for index in range(nvml.nvmlDeviceGetCount()):
                with contextlib.suppress(nvml.NVMLError):  # another job's GPU, or one without these events
                    device = nvml.nvmlDeviceGetHandleByIndex(index)
                    if nvml.nvmlDeviceGetSupportedEventTypes(device) & nvml.nvmlEventTypeXidCriticalError:
                        nvml.nvmlDeviceRegisterEvents(device, nvml.nvmlEventTypeXidCriticalError, events)
                        self.followed = True
            while self.followed:
                try:
                    event = nvml.nvmlEventSetWait_v2(events, WAIT_MS)
                except nvml.NVMLError_Timeout:
                    continue
                bus = nvml.nvmlDeviceGetPciInfo(event.device).busId
                bus = bus.decode() if isinstance(bus, bytes) else bus
                self.lines.append(f"NVRM: Xid (PCI:{bus}): {event.eventData}, as NVML reports it")
