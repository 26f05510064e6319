"""A small file system of a test's own, and the last byte of it."""

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


@contextlib.contextmanager
def mounted(path: Path, *how: str) -> Iterator[Path]:
    """Another file system there, by these words of mount."""
    path.mkdir(exist_ok=True)
    if subprocess.run(["mount", *how, str(path)], check=False).returncode:
        pytest.skip("no such file system can be mounted here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.fixture
def full_mount(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a small tmpfs of a size, once; further options after a comma."""
    with contextlib.ExitStack() as stack:
        how = ("-t", "tmpfs", "none", "-o")
        yield lambda size: stack.enter_context(mounted(tmp_path / "small", *how, f"size={size}"))
