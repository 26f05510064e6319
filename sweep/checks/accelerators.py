"""Rules of GPUs, by the fields of ``nvidia-smi -q``. Only hardware shows whether they find what they should."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from sweep.checks.check import Finding, Json, Rule, Stated, Verdict
from sweep.checks.rules import each_row
from sweep.checks.tools import Fields, first, known, number, nvidia_smi, nvlinks
from sweep.physics.hardware import GPUS, gpu_kind

MEMORY_IN_USE_MIB = 2048.0
"""more than contexts of monitoring tools take: another program's tensors (Primus' smoke test)"""
THROTTLES = (
    "HW Slowdown",
    "HW Slowdown / HW Thermal Slowdown",
    "HW Slowdown / HW Power Brake Slowdown",
    "SW Thermal Slowdown",
)
"""reasons that slow a healthy GPU never has; idle, power cap and application clocks are no defect"""
PCI = "PCI / GPU Link Info"
OTHER_MAKERS = frozenset(name for name, gpu in GPUS.items() if "NVIDIA" not in gpu.source)


def gpus_of(value: Json) -> list[Fields]:
    """Each GPU's fields. Raises ValueError where the text holds none."""
    if not isinstance(value, str):
        raise ValueError("no text of nvidia-smi")
    found = nvidia_smi(value)[1]
    if not found:
        raise ValueError("nvidia-smi -q lists no GPU")
    return found


def each(rule: Callable[[Fields], str | None], expected: str, verdict: Verdict = Verdict.BELOW_FLOOR) -> Rule:
    """Applies the rule to each GPU. It returns what is wrong; None: nothing; ValueError: unreadable."""

    def evaluate(value: Json, _: Stated) -> Finding:
        gpus = gpus_of(value)
        wrong: dict[str, str] = {}
        unreadable: list[str] = []
        for number_, gpu in enumerate(gpus):
            try:
                if (what := rule(gpu)) is not None:
                    wrong[f"GPU {number_}"] = what
            except ValueError:
                unreadable.append(f"GPU {number_}")
        if unreadable and not wrong:
            return Finding(verdict=Verdict.UNKNOWN, found=f"not stated: {', '.join(unreadable)}", expected=expected)
        return each_row(wrong, len(gpus), expected, verdict=verdict)

    return evaluate


def stated(gpu: Fields, *paths: str) -> str:
    """The value at the first of these paths that is known. Raises ValueError where the driver states none."""
    found = first(gpu, *paths)
    if found is None:
        raise ValueError("not stated")
    return found


def figure(gpu: Fields, *paths: str) -> float:
    """The number that it begins with. Raises ValueError where there is none."""
    found = number(stated(gpu, *paths))
    if found is None:
        raise ValueError("no number")
    return found


def present(value: Json, stated: Stated) -> Finding:
    """Any at all. Without NVIDIA's driver there are none, unless the site's GPUs are of another maker."""
    if value is False:
        verdict = Verdict.UNKNOWN if stated.gpu in OTHER_MAKERS else Verdict.BELOW_FLOOR
        return Finding(verdict=verdict, found="none: nvidia-smi is not installed", expected=str(stated.gpus_per_node))
    return Finding(verdict=Verdict.OK, found=str(len(gpus_of(value))))


def count(value: Json, stated: Stated) -> Finding:
    """As many GPUs as the site states. More: nvidia-smi shows those that the job was not given, too."""
    found = len(gpus_of(value))
    verdict = Verdict.BELOW_FLOOR if found < stated.gpus_per_node else Verdict.OK
    if found > stated.gpus_per_node:
        verdict = Verdict.WARNING
    return Finding(verdict=verdict, found=str(found), expected=str(stated.gpus_per_node), number=float(found))


def kind(value: Json, stated: Stated) -> Finding:
    """Of the kind that the site states; a name that no kind is known for shows nothing."""
    names = {gpu.get("Product Name", "") for gpu in gpus_of(value)}
    wrong = sorted(name for name in names if gpu_kind([name]) not in (None, stated.gpu))
    shown = ", ".join(sorted(names))
    unread = any(gpu_kind([name]) is None for name in names)
    verdict = Verdict.BELOW_FLOOR if wrong else Verdict.UNKNOWN if unread else Verdict.OK
    return Finding(verdict=verdict, found=shown or "no name", expected=stated.gpu)


def driver(value: Json, _: Stated) -> Finding:
    """Driver, VBIOS and GSP firmware, to be compared with the other nodes."""
    gpus = gpus_of(value)
    version = nvidia_smi(str(value))[0].get("Driver Version", "?")
    vbios = sorted({gpu.get("VBIOS Version", "?") for gpu in gpus})
    gsp = sorted({gpu.get("GSP Firmware Version", "?") for gpu in gpus})
    return Finding(verdict=Verdict.OK, found=f"driver {version}, VBIOS {' '.join(vbios)}, GSP {' '.join(gsp)}")


def ecc(gpu: Fields) -> str | None:
    """Uncorrectable errors since the driver was loaded."""
    names = [n for n in gpu if re.match(r"ECC Errors / Volatile / .*Uncorrectable", n)]
    stated(gpu, *names)
    counts = {name: number(gpu[name]) for name in names if known(gpu[name]) is not None}
    bad = [f"{name.rpartition(' / ')[2]} {gpu[name]}" for name, count in counts.items() if count]
    if not bad and None in counts.values():
        raise ValueError("a count of errors is no number")
    return ", ".join(bad) or None


def remapped_rows(gpu: Fields) -> str | None:
    """A remapping that failed, or one that waits for a reset (NVIDIA GPU memory error management)."""
    failed = stated(gpu, "Remapped Rows / Remapping Failure Occurred")
    pending = stated(gpu, "Remapped Rows / Pending")
    bad = [name for name, text in (("remapping failed", failed), ("pending: reset the GPU", pending)) if text == "Yes"]
    return ", ".join(bad) or None


def pcie(gpu: Fields) -> str | None:
    """Fewer lanes than the device and its host have. The generation falls while a GPU idles, so it is not evaluated."""
    now, most = (figure(gpu, f"{PCI} / Link Width / {which}") for which in ("Current", "Max"))
    return f"x{now:.0f} of x{most:.0f}" if now < most else None


def throttled(gpu: Fields) -> str | None:
    """Clocks reduced by heat or a power brake."""
    headings = ("Clocks Event Reasons", "Clocks Throttle Reasons")
    stated(gpu, *(f"{heading} / {reason}" for heading in headings for reason in THROTTLES))
    active = [r for r in THROTTLES for heading in headings if gpu.get(f"{heading} / {r}") == "Active"]
    return ", ".join(reason.rpartition(" / ")[2] for reason in active) or None


def power_cap(gpu: Fields) -> str | None:
    """A limit below the default."""
    headings = ("GPU Power Readings", "Power Readings")
    now = figure(gpu, *(f"{h} / {n}" for h in headings for n in ("Current Power Limit", "Power Limit")))
    usual = figure(gpu, *(f"{heading} / Default Power Limit" for heading in headings))
    return f"{now:.0f} W of {usual:.0f} W" if now < usual else None


def persistence(gpu: Fields) -> str | None:
    """Without it each start of a process initialises the GPU."""
    return None if stated(gpu, "Persistence Mode") == "Enabled" else "off"


def memory_in_use(gpu: Fields) -> str | None:
    """Memory that other programs hold before anything of ours has started."""
    used = figure(gpu, "FB Memory Usage / Used")
    return f"{used:.0f} MiB in use" if used >= MEMORY_IN_USE_MIB else None


def mig(gpu: Fields) -> str | None:
    """A GPU in parts."""
    return "MIG is on" if gpu.get("MIG Mode / Current") == "Enabled" else None


def compute_mode(gpu: Fields) -> str | None:
    """Prohibited: no program can use the GPU. Exclusive_Process suits us: one process has a GPU."""
    return "Prohibited" if gpu.get("Compute Mode") == "Prohibited" else None


def fabric(gpu: Fields) -> str | None:
    """NVSwitch systems: the fabric manager has not finished."""
    state = first(gpu, "Fabric / State")
    return f"fabric {state}" if state not in (None, "Completed") else None


def links(value: Json, _: Stated) -> Finding:
    """All GPUs have as many active NVLinks of one speed (H100: 18 of 26,562 MB/s). None at all: PCIe only."""
    if not isinstance(value, str):
        raise ValueError("no text of nvidia-smi nvlink")
    gpus = nvlinks(value)
    if not gpus:
        raise ValueError("no GPU listed")
    most, fastest = max(len(found) for found in gpus), max((rate for found in gpus for rate in found), default=0.0)
    wrong: Mapping[str, str] = {
        f"GPU {at}": f"{len(found)} links, slowest {min(found, default=0):.3g} GB/s"
        for at, found in enumerate(gpus)
        if len(found) < most or any(rate < fastest for rate in found)
    }
    return each_row(wrong, len(gpus), f"{most} links of {fastest:.3g} GB/s")
