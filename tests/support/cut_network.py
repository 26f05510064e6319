"""A network that one agent of a pilot has alone, and that can be cut: a network namespace and a veth pair."""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator

import pytest


class CutNetwork:
    """The namespace's only way out. Packets are dropped while it is cut: connections stay open, and are silent."""

    def __init__(self, number: int) -> None:
        self.name = f"sweep{os.getpid()}-{number}"
        self._outside, self._inside = f"c{number}x{os.getpid()}a", f"c{number}x{os.getpid()}b"
        self._addresses = f"10.231.{number}.1", f"10.231.{number}.2"

    @property
    def outer_address(self) -> str:
        """Of this machine, as seen from inside."""
        return self._addresses[0]

    def enter(self, condition: str) -> list[str]:
        """A command's prefix that enters the namespace where the shell condition on its arguments holds."""
        script = f'if {condition}; then exec nsenter --net=/run/netns/{self.name} "$@"; else exec "$@"; fi'
        return ["/bin/sh", "-c", script, "agent"]

    def cut(self) -> None:
        _ip("link", "set", self._outside, "down")

    def mend(self) -> None:
        _ip("link", "set", self._outside, "up")

    @contextlib.contextmanager
    def cut_for(self, seconds: float) -> Iterator[None]:
        """Cut it for this long at least, and until the block is done."""
        until = time.monotonic() + seconds
        self.cut()
        try:
            yield
            time.sleep(max(0.0, until - time.monotonic()))
        finally:
            self.mend()

    def make(self) -> None:
        _ip("netns", "add", self.name)
        _ip("link", "add", self._outside, "type", "veth", "peer", "name", self._inside)
        _ip("link", "set", self._inside, "netns", self.name)
        _ip("addr", "add", f"{self._addresses[0]}/30", "dev", self._outside)
        _ip("-n", self.name, "addr", "add", f"{self._addresses[1]}/30", "dev", self._inside)
        for words in (("link", "set", self._outside), ("-n", self.name, "link", "set", self._inside)):
            _ip(*words, "up")
        _ip("-n", self.name, "link", "set", "lo", "up")

    def remove(self) -> None:
        for words in (("link", "del", self._outside), ("netns", "del", self.name)):
            subprocess.run(["ip", *words], check=False, capture_output=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _made(number: int) -> Iterator[CutNetwork]:
    if shutil.which("ip") is None:
        pytest.skip("no network namespace can be made here: ip is not installed")
    made = CutNetwork(number)
    try:
        made.make()
    except (OSError, subprocess.CalledProcessError):
        made.remove()
        pytest.skip("no network namespace can be made here")
    yield made
    made.remove()


@pytest.fixture
def network() -> Iterator[CutNetwork]:
    """One; skip where none can be made."""
    yield from _made(os.getpid() % 125)


@pytest.fixture
def second_network() -> Iterator[CutNetwork]:
    """Another one."""
    yield from _made(125 + os.getpid() % 125)
