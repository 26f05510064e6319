"""What a rank runs on: its device, the software, the cores next to a GPU, the GPU's state and the host's load.

Cores and state come from NVML, and are missing where there is none.
"""

from __future__ import annotations

import functools
import importlib
import math
import operator
import os
import platform
import resource
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from sweep.contract import Place


def bind_to_near_cores(device: torch.device, place: Place) -> list[int] | None:
    """Keep this process on the cores of its GPU's NUMA node, or on CPU on its share of the cores it may use.

    Returns the cores, or None where nothing was bound. Cores outside the process's affinity are never added.
    """
    if not hasattr(os, "sched_setaffinity"):
        return None
    allowed = sorted(os.sched_getaffinity(0))
    if device.type == "cuda":
        cores = sorted(set(_near_cores(device)) & set(allowed))
    else:
        share = len(allowed) // place.local_world_size
        cores = allowed[place.local_rank * share : (place.local_rank + 1) * share]
    if not cores:
        return None
    os.sched_setaffinity(0, cores)
    return cores


def state(device: torch.device) -> dict[str, Any]:
    """Clocks, power, temperature and throttle reasons of this rank's GPU at this moment."""
    if device.type != "cuda" or (nvml := _nvml()) is None:
        return {}
    handle = _handle(nvml, device)
    questions: dict[str, Callable[[], Any]] = {
        "sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        "sm_clock_max_mhz": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
        "power_instant_w": lambda: _instant_power_w(nvml, handle),
        "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3,
        "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "throttle_reasons": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
        "gpu_uuid": lambda: nvml.nvmlDeviceGetUUID(handle),
    }
    found: dict[str, Any] = {}
    for name, ask in questions.items():
        with suppress(nvml.NVMLError, AttributeError):  # another release of the bindings may lack a function
            answer = ask()
            found[name] = answer.decode() if isinstance(answer, bytes) else answer
    instant = found.pop("power_instant_w", None)
    if instant is not None:
        found["power_w"] = instant
    if "power_w" in found:
        found["power_kind"] = "average" if instant is None else "instant"
    return found


def _instant_power_w(nvml: Any, handle: Any) -> float | None:
    """From Ampere on power is otherwise an average over a second (nvml.h); None where there is no such field."""
    (field,) = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_POWER_INSTANT])
    return field.value.uiVal / 1e3 if field.nvmlReturn == nvml.NVML_SUCCESS else None


NO_NVML = "NVML's bindings (nvidia-ml-py, in the torch extra) are not installed: no clocks, power or throttling"
PERIOD_S = 0.1
"""between two samples, and how often a GPU updates its power and energy (20 to 100 ms: Yang et al., "Part-time Power
Measurements", 2024, arXiv 2312.02741)"""
COARSE_ENERGY_S = 2.0
"""a shorter step's energy is known to less than 5 %: either end may be a period off"""
STAT = Path("/proc/stat")
"""`procs_running`: tasks of the whole host that run or wait for a core (proc(5)); Linux only"""


class Sampler:
    """Samples from a thread: the GPU's clocks, power, temperature and throttle reasons during steps, and how much work
    the host has meanwhile: with more than cores, the times are of the crowd, too. And the steps' energy.

    What lies between two steps (reading counters, collecting garbage) does not count for the GPU: it is idle then.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._samples: list[dict[str, Any]] = []
        self._runnable: list[int] = []
        self._over = threading.Event()
        self._in_step = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._energy_j: list[float | None] = []
        """of each step"""
        self._shortest_s = math.inf

    def __enter__(self) -> Sampler:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    @contextmanager
    def step(self) -> Iterator[None]:
        """Around a step. Reads the counter of energy at either end, and takes a sample at its end at least."""
        before = _energy_j(self._device)
        self._in_step.set()
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._in_step.clear()
            self._shortest_s = min(self._shortest_s, time.perf_counter() - begun)
            after = _energy_j(self._device)
            self._energy_j.append(None if before is None or after is None else after - before)
            if found := state(self._device):
                self._samples.append(found)

    def results(self, tokens: int) -> dict[str, Any]:
        """Least, median and greatest of each value of a GPU, reasons of throttling ever seen, energy; the median number
        of runnable tasks, and of cores (a record notes if the first is more).

        ``tokens``: that this GPU's share of the steps processed.
        """
        load: dict[str, Any] = {}
        if self._runnable:
            load = {"host_runnable_tasks": statistics.median(self._runnable), "host_cores": os.cpu_count() or 1}
        if self._device.type != "cuda":
            return load
        if not self._samples:
            return {**load, "device_samples": None, "notes": [NO_NVML]}
        values: dict[str, Any] = {"count": len(self._samples)}
        for name in ("sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c"):
            found = sorted(sample[name] for sample in self._samples if name in sample)
            values[name] = [found[0], statistics.median(found), found[-1]] if found else None
        seen = functools.reduce(operator.or_, (sample.get("throttle_reasons", 0) for sample in self._samples), 0)
        values["power_kind"] = next((sample["power_kind"] for sample in self._samples if "power_kind" in sample), None)
        values["throttle_reasons"] = [text for bit, text in THROTTLE_REASONS.items() if seen & bit]
        known = [energy for energy in self._energy_j if energy is not None]
        spent = sum(known) if known and len(known) == len(self._energy_j) else None
        per_token = None if spent is None or not tokens else spent / tokens
        results: dict[str, Any] = {**load, "device_samples": values, "energy_j": spent, "energy_j_per_token": per_token}
        if spent is not None:
            results["energy_coarse"] = self._shortest_s < COARSE_ENERGY_S
        if reasons := values["throttle_reasons"]:
            results["notes"] = [f"the GPU's clocks were lowered while it was timed: {', '.join(reasons)}"]
        return results

    def _sample(self) -> None:
        over = False
        while not over:
            with suppress(OSError, ValueError, IndexError):  # less the reader itself
                self._runnable.append(int(STAT.read_text().split("procs_running ")[1].split()[0]) - 1)
            over = self._over.wait(PERIOD_S)
            if not over and self._in_step.is_set() and (found := state(self._device)):
                self._samples.append(found)


THROTTLE_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}
"""bits of ``nvmlDeviceGetCurrentClocksThrottleReasons`` (nvml.h) that mean a lower clock than the load would allow"""


def _energy_j(device: torch.device) -> float | None:
    """Energy that the GPU has used since its driver was loaded; None where it does not count."""
    if device.type != "cuda" or (nvml := _nvml()) is None:
        return None
    with suppress(nvml.NVMLError, AttributeError):
        return float(nvml.nvmlDeviceGetTotalEnergyConsumption(_handle(nvml, device))) / 1e3
    return None


def peak_resident_set_bytes() -> int:
    """The most memory that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def name(device: torch.device) -> str:
    """The device's name."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()


def versions(device: torch.device) -> dict[str, str]:
    """Versions of the software that a measurement depends on."""
    import torch

    found = {"python": platform.python_version(), "torch": torch.__version__}
    if device.type == "cuda":
        found["cuda"] = str(torch.version.cuda)
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return found


def _near_cores(device: torch.device) -> list[int]:
    nvml = _nvml()
    if nvml is None:
        return []
    words = (os.cpu_count() or 1) // 64 + 1
    try:
        masks = nvml.nvmlDeviceGetCpuAffinity(_handle(nvml, device), words)
    except nvml.NVMLError:
        return []
    return [64 * word + bit for word, mask in enumerate(masks) for bit in range(64) if mask >> bit & 1]


def _handle(nvml: Any, device: torch.device) -> Any:
    """By UUID: NVML does not honour CUDA_VISIBLE_DEVICES, torch's numbers do."""
    import torch

    uuid = str(torch.cuda.get_device_properties(device).uuid)
    return nvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}")


def _nvml() -> Any:
    """The NVML bindings, started; None where there are none or no driver."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # no driver, no library, an old binding: in any case NVML is unavailable
        return None
    return nvml
