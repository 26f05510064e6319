"""A small file system of a test's own, and the last byte of it."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


def fill(path: Path) -> None:
    """Leave no free byte."""
    with (path / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while filler.write(b"x" * 4096):
            pass


@pytest.fixture
def full_mount(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a small tmpfs of a size, once; further options after a comma."""
    path = tmp_path / "small"
    path.mkdir()

    def mount(size: str) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)]
        if subprocess.run(command, check=False).returncode:
            pytest.skip("no tmpfs can be mounted here")
        return path

    yield mount
    if path.is_mount():
        subprocess.run(["umount", "--lazy", str(path)], check=True)
