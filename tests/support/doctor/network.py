"""Pretend nodes with a network each, of which one is defective; and an agent's way in, as a container prefix."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

SWITCH = Path(__file__).parent / "switch.py"


@dataclass(frozen=True)
class Network:
    interface: str
    """of every node, and of this machine"""

    @property
    def prefix(self) -> list[str]:
        """Of an agent's command: enter the namespace of the node on which it starts."""
        return [sys.executable, str(Path(__file__).absolute()), self.interface]


@contextmanager
def networked(nodes: Sequence[str], defects: dict[str, str]) -> Iterator[Network]:
    """Skips where there can be none."""
    number = os.getpid() % 250
    interface = f"sweep{os.getpid()}"
    words = ",".join(f"{node}={defects.get(node, '')}" for node in nodes)
    command = [sys.executable, str(SWITCH), interface, f"10.232.{number}", words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as switch:
        assert switch.stdin is not None
        assert switch.stdout is not None
        assert switch.stderr is not None
        if switch.stdout.readline() != b"ready\n":
            last = switch.stderr.read().decode(errors="replace").strip().splitlines()[-1:]
            pytest.skip(f"no network namespaces with TUN devices and tbf can be made here: {''.join(last)}")
        try:
            yield Network(interface)
        finally:
            switch.stdin.close()
            switch.wait(30)


@pytest.fixture
def network() -> Iterator[Callable[[Sequence[str], dict[str, str]], Network]]:
    """A function: nodes, node -> defect (latency, loss, rate, cut, or what it may send: 20mbit)."""
    with ExitStack() as stack:
        yield lambda nodes, defects: stack.enter_context(networked(nodes, defects))


def enter(interface: str, command: list[str]) -> None:
    node = os.environ.get("SLURMD_NODENAME") or command[command.index("--node") + 1]
    os.execvp("nsenter", ["nsenter", f"--net=/run/netns/{interface}-{node}", *command])


if __name__ == "__main__":
    enter(sys.argv[1], sys.argv[2:])
