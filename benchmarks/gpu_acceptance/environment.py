"""What the results depend on: versions, driver, device, and which optional parts are there."""

from __future__ import annotations

import importlib.util
import subprocess
from typing import Any

from benchmarks.gpu_acceptance.parts import Check, Result, Setting
from sweep.physics.hardware import GPUS, gpu_kind

_SMI = "name,driver_version,memory.total,power.limit,clocks.max.sm,temperature.gpu,mig.mode.current"


def run(setting: Setting) -> Result:
    """Facts of this machine; checks that the rest can run."""
    import torch

    from bench_workloads import hardware

    facts: dict[str, Any] = {"torch": torch.__version__, "cuda": torch.version.cuda, "nvidia_smi": _nvidia_smi()}
    facts |= {f"has_{name}": importlib.util.find_spec(name) is not None for name in ("pynvml", "triton")}
    facts["has_fa3"] = importlib.util.find_spec("flash_attn_interface") is not None
    if setting.gpu == "cpu":
        return Result([Check("torch sees the GPU", None, "rehearsal")], facts)
    device = torch.device("cuda", 0)
    facts |= hardware.versions(device) | hardware.state(device)
    name, total = torch.cuda.get_device_name(0), torch.cuda.get_device_properties(0).total_memory
    stated = GPUS[setting.gpu].memory_bytes or 0
    facts |= {"device": name, "memory_bytes": total, "capability": torch.cuda.get_device_capability(0)}
    checks = [
        Check("torch sees the GPU", torch.cuda.is_available(), name),
        Check("its name is of a known kind", gpu_kind([name]) == setting.gpu, f"{name}: {setting.gpu}"),
        Check(
            "its memory is that of the catalogue", abs(total / 2**30 / (stated / 1e9) - 1) < 0.03, f"{total:,} bytes"
        ),
        Check("NVML's bindings are installed (clocks, power)", bool(facts["has_pynvml"])),
        Check("Triton is installed (compilation)", bool(facts["has_triton"])),
    ]
    return Result(checks, facts)


def _nvidia_smi() -> str | None:
    command = ["nvidia-smi", f"--query-gpu={_SMI}", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
