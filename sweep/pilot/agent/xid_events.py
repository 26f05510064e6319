"""Critical Xids of this node's GPUs as NVML reports them to any user, in a thread: the driver may hang.

The kernel's log has them too, where this user may read it. Not verified on hardware.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from typing import Any

WAIT_MS = 1000


class XidEvents:
    """Follows the events from its construction on. Without NVML's bindings or a driver there are none."""

    def __init__(self, nvml: Any = None) -> None:
        """``nvml``: the bindings (nvidia-ml-py, in the torch extra); None: those that are installed."""
        self.lines: list[str] = []
        """as the kernel's log words them, only appended to"""
        self.followed = False
        """NVML reports them for at least one GPU"""
        with contextlib.suppress(ImportError):
            self._nvml = nvml or importlib.import_module("pynvml")
            threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        nvml = self._nvml
        with contextlib.suppress(Exception):  # no driver, no library, an old binding: the kernel's log is what is left
            nvml.nvmlInit()
            events = nvml.nvmlEventSetCreate()
            for index in range(nvml.nvmlDeviceGetCount()):
                self._register(index, events)
            while self.followed:
                try:
                    event = nvml.nvmlEventSetWait_v2(events, WAIT_MS)
                except nvml.NVMLError_Timeout:
                    continue
                bus = nvml.nvmlDeviceGetPciInfo(event.device).busId
                bus = bus.decode() if isinstance(bus, bytes) else bus
                self.lines.append(f"NVRM: Xid (PCI:{bus}): {event.eventData}, as NVML reports it")

    def _register(self, index: int, events: Any) -> None:
        nvml = self._nvml
        with contextlib.suppress(nvml.NVMLError):  # another job's GPU, or one without these events
            device = nvml.nvmlDeviceGetHandleByIndex(index)
            if nvml.nvmlDeviceGetSupportedEventTypes(device) & nvml.nvmlEventTypeXidCriticalError:
                nvml.nvmlDeviceRegisterEvents(device, nvml.nvmlEventTypeXidCriticalError, events)
                self.followed = True
