"""Output of real tools as rows: ``nvidia-smi -q``, ``/sys/class/infiniband``. Texts in, values out."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sweep.checks.check import Json

Fields = dict[str, str]
"""path of headings, joined by " / " -> value"""
_FIELD = re.compile(r"^( *)([^:\n]*?)(?: *: (.*))?$")
FABRIC = ("State", "Status", "ClusterUUID", "CliqueId")
_NOTHING = (
    "",
    "N/A",
    "[N/A]",
    "Not Found",
    "Not Supported",
    "[Not Supported]",
    "Unknown Error",
    "[Unknown Error]",
    "ERR!",
    "Requested functionality has been deprecated",
)


def nvidia_smi(text: str) -> tuple[Fields, list[Fields]]:
    """(fields of the driver, fields of each GPU) of ``nvidia-smi -q``.

    Headings differ between drivers: 535 has "Clocks Event Reasons", older ones "Clocks Throttle Reasons". Fields are
    nested by indentation: "PCI / GPU Link Info / Link Width / Current". A repeated path has its last value.
    """
    driver: Fields = {}
    gpus: list[Fields] = []
    path: list[tuple[int, str]] = []
    for line in text.splitlines():
        if re.match(r"^GPU [0-9A-Fa-f]+:[0-9A-Fa-f:.]+", line):
            gpus.append({"GPU": line.split()[1]})
            path = []
            continue
        found = _FIELD.match(line.rstrip().expandtabs(8))
        if found is None or not found[2].strip() or "====" in line:
            continue
        depth, name, value = len(found[1]), found[2].strip(), found[3]
        path = [(at, heading) for at, heading in path if at < depth]
        if value is None:
            path.append((depth, name))
            continue
        key = " / ".join([*(heading for _, heading in path), name])
        (gpus[-1] if gpus else driver)[key] = value.strip()
        path.append((depth, name))
    return driver, gpus


def known(value: str | None) -> str | None:
    """The text; None where the driver does not know it."""
    return None if value is None or value.strip() in _NOTHING else value.strip()


def number(value: str | None) -> float | None:
    """The number at the start of "80994 MiB", "16x" or "5"; None where there is none."""
    found = re.match(r"-?\d+(?:\.\d+)?", known(value) or "")
    return float(found[0]) if found else None


def first(fields: Mapping[str, str], *paths: str) -> str | None:
    """The value at the first of these paths that is known."""
    return next((found for path in paths if (found := known(fields.get(path))) is not None), None)


def fabric(text: str) -> str | None:
    """The NVLink domain that a node's GPUs are in, ``ClusterUUID.CliqueId``, of ``nvidia-smi -q``.

    None where the driver states none: no GPU has registered with its fabric, all have not with the same one, or the id
    is 0, as on machines whose NVLink ends at the node (NVML reference, ``nvmlGpuFabricInfoV``).
    """
    found = set()
    for gpu in nvidia_smi(text)[1]:
        state, status, uuid, clique = (gpu.get(f"Fabric / {name}", "") for name in FABRIC)
        good = (state, status) == ("Completed", "Success") and uuid.strip("0-")
        found.add(f"{uuid}.{clique}" if good and known(uuid) and known(clique) else None)
    return found.pop() if len(found) == 1 else None


def nvlinks(text: str) -> list[list[float]]:
    """GB/s of each active link of each GPU, of ``nvidia-smi nvlink --status``; inactive ones are omitted."""
    gpus: list[list[float]] = []
    for line in text.splitlines():
        if re.match(r"^GPU \d+:", line):
            gpus.append([])
        elif gpus and (found := re.match(r"^\s+Link \d+: ([\d.]+) GB/s", line)):
            gpus[-1].append(float(found[1]))
    return gpus


def port_of_sys(adapter: str, port: int, files: Mapping[str, str]) -> dict[str, Json]:
    """A row of a port: adapter, port, state, physical state, rate in Gb/s, link layer.

    From the files of ``/sys/class/infiniband/ADAPTER/ports/PORT``.
    ``state`` holds "4: ACTIVE", ``phys_state`` "5: LinkUp", ``rate`` "400 Gb/sec (4X NDR)".
    """

    def words(name: str) -> str:
        return files.get(name, "").strip().rpartition(": ")[2]

    return {
        "adapter": adapter,
        "port": port,
        "state": words("state").capitalize(),
        "physical_state": words("phys_state"),
        "gbit_per_s": number(files.get("rate")),
        "link_layer": files.get("link_layer", "").strip(),
    }
