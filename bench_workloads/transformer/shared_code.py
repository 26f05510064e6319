"""Compiled code that the pilots of a sweep share: what one has compiled is laid into the next one's caches.

torch and triton find compiled code by hashes of the graph, their own version and the device. Files are kept apart for
all that these hashes leave out, so that no node loads what was made for another kind of processor, driver or release.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench_workloads import hardware

if TYPE_CHECKING:
    import torch

    from sweep.contract import Place

FILTER: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""not in Debian 12's Python 3.11.2; the archives are the user's own"""
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
MOST_BYTES = 2**28
"""of one kind of node in a sweep: a hundred layouts, at 2 to 3 MB each. Every node of a pilot reads them all"""

DESCRIBED_BY = {
    "/proc/cpuinfo": ("model name", "flags", "Features"),
    "/proc/driver/nvidia/version": ("",),
    "/sys/module/amdgpu/version": ("",),
}
"""the processor's instructions, and the version of the GPU's driver: file -> what the lines that count begin with"""


class SharedCode:
    """A sweep's compiled code, seen from one node's caches. Does nothing where the user has set caches of their own."""

    def __init__(self, place: Place, device: torch.device) -> None:
        own = Path(place.scratch_dir).parent
        paths = [Path(os.environ[name]) for name in CACHES if name in os.environ]
        self._caches = {path.name: path for path in paths if path.parent == own} if place.compiled_dir else {}
        self._folder = Path(place.compiled_dir) / kind_of_node(device)
        self._known = own / "shared-code"
        """on this node: a file for each of the sweep's, which lists what is in it"""

    def fetch(self) -> None:
        """Lay into the caches what other nodes have compiled. What cannot be read is compiled again."""
        if not self._caches:
            return
        with contextlib.suppress(OSError, tarfile.TarError):
            self._known.mkdir(exist_ok=True)
            about = self._folder.stat()
            if about.st_uid != os.getuid() or about.st_mode & 0o022:
                return  # code that others may have written is not run
            for packed in sorted(self._folder.glob("*.tar")):
                if not (self._known / packed.name).exists():
                    with tarfile.open(packed) as archive:
                        archive.extractall(self._known.parent, **FILTER)  # noqa: S202
                        self._note(packed.name, archive.getnames())

    def share(self) -> None:
        """Add what this node has compiled since, once, unless that would be over MOST_BYTES."""
        if not self._caches:
            return
        with contextlib.suppress(OSError):
            known = {name for file in self._known.iterdir() for name in file.read_text().splitlines()}
            if not (names := sorted(self._compiled() - known)):
                return
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            packed = self._folder / f"{_digest(names)}.tar"
            if not packed.exists() and self._has_room(names):
                part = packed.with_suffix(f".{os.getpid()}.{platform.node()}")
                with tarfile.open(part, "w") as archive:
                    for name in names:
                        archive.add(self._known.parent / name, name)
                part.replace(packed)
            self._note(packed.name, names)

    def _compiled(self) -> set[str]:
        """The files of the caches, but for locks, by their path under the pilot's scratch directory."""
        files = (path for cache in self._caches.values() for path in cache.rglob("*") if path.is_file())
        return {str(path.relative_to(self._known.parent)) for path in files if path.parent.name != "locks"}

    def _has_room(self, names: list[str]) -> bool:
        shared = sum(path.stat().st_size for path in self._folder.iterdir())
        return shared + sum((self._known.parent / name).stat().st_size for name in names) <= MOST_BYTES

    def _note(self, packed: str, names: list[str]) -> None:
        (self._known / packed).write_text("\n".join(names))


def kind_of_node(device: torch.device) -> str:
    """A name of all that compiled code depends on: releases, GPU, driver, and the processor's instructions."""
    facts = [*hardware.versions(device).values(), hardware.name(device), platform.machine()]
    for path, selected in DESCRIBED_BY.items():
        with contextlib.suppress(OSError):
            lines = Path(path).read_text().split("\n\n")[0].splitlines()
            facts += [line for line in lines if line.startswith(selected)]
    return _digest(facts)


def _digest(texts: list[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:32]
