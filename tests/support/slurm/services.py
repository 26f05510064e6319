"""What a cluster depends on: programs on PATH, a shared munged, free ports, daemons that are waited for."""

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.support.slurm.config import PORTS_PER_CLUSTER

_SBIN = ("/usr/sbin", "/sbin", "/usr/local/sbin")
_NEEDED = ("slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "munged", "munge")
_NEEDED_FOR_ACCOUNTING = ("slurmdbd", "sacct", "sacctmgr", "mariadbd", "mariadb-install-db")
_FIRST_PORT, _SLOTS = 10240, 64
"""10240 to 18431: below the ephemeral range, and below the ports that attempts use"""


class ClusterError(Exception):
    """A cluster operation failed; the message has the tails of its logs."""


def missing_programs(accounting: bool = True) -> list[str]:
    """Programs missing on this machine for a cluster."""
    needed = _NEEDED + (_NEEDED_FOR_ACCOUNTING if accounting else ())
    return [name for name in needed if which(name) is None]


def which(name: str) -> str | None:
    """Like shutil.which, in SLURM_PREFIX first, and in the sbin folders that a user's PATH may lack."""
    return shutil.which(name, path=os.pathsep.join((clients_path(os.environ), *_SBIN)))


def clients_path(environment: Mapping[str, str]) -> str:
    """PATH with the programs of the Slurm that ``SLURM_PREFIX`` names, if it does, before all others."""
    prefix, path = environment.get("SLURM_PREFIX") or os.environ.get("SLURM_PREFIX"), environment.get("PATH", "")
    return os.pathsep.join([f"{prefix}/bin", f"{prefix}/sbin", path]) if prefix else path


def program(name: str) -> str:
    """The path of a program that missing_programs() did not name."""
    path = which(name)
    if path is None:
        raise ClusterError(f"{name} is not installed")
    return path


def slurm_version() -> tuple[int, int]:
    """(22, 5) for "slurm-wlm 22.05.8"."""
    text = subprocess.run([program("slurmctld"), "-V"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+)\.(\d+)", text)
    if found is None:
        raise ClusterError(f"no version in {text!r}")
    return int(found[1]), int(found[2])


@contextlib.contextmanager
def machine_lock(name: str) -> Iterator[None]:
    """One process of this machine at a time."""
    with (Path(tempfile.gettempdir()) / f"sweep-test-{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class PortSlot:
    """A range of PORTS_PER_CLUSTER free ports, reserved against other clusters of this machine while it is open."""

    def __init__(self) -> None:
        for slot in range(_SLOTS):
            first = _FIRST_PORT + slot * PORTS_PER_CLUSTER
            file = (Path(tempfile.gettempdir()) / f"sweep-test-ports-{first}.lock").open("w")
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if all(_free(port) for port in range(first, first + PORTS_PER_CLUSTER)):
                    self.first, self._file = first, file
                    return
            file.close()
        raise ClusterError(f"no {PORTS_PER_CLUSTER} free ports from {_FIRST_PORT} on: too many clusters run")

    def close(self) -> None:
        """Release the ports."""
        self._file.close()


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def ensure_munged() -> None:
    """Start munged as its own user, once per machine. It is shared by all clusters and stays."""
    with machine_lock("munge"):
        if _munge_works():
            return
        key = Path("/etc/munge/munge.key")
        for folder, mode in (
            ("/etc/munge", 0o700),
            ("/run/munge", 0o755),
            ("/var/log/munge", 0o700),
            ("/var/lib/munge", 0o711),
        ):
            path = Path(folder)
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(mode)
            shutil.chown(path, "munge", "munge")
        if not key.exists():
            key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        shutil.chown(key, "munge", "munge")
        plain = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")}
        done = subprocess.run(
            ["runuser", "-u", "munge", "--", program("munged")], capture_output=True, text=True, env=plain, cwd="/"
        )
        if not wait_until(_munge_works, 10):
            log = Path("/var/log/munge/munged.log")
            raise ClusterError(f"munged does not answer: {done.stderr}\n{tail(log)}")


def _munge_works() -> bool:
    return subprocess.run([program("munge"), "-n"], capture_output=True).returncode == 0


def spawn(argv: list[str], log: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A daemon in the foreground, in a session of its own, its output in the log."""
    with log.open("ab") as out:
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, cwd="/", env=dict(env)
        )


def wait_until(condition: Callable[[], bool], timeout_s: float, every_s: float = 0.1) -> bool:
    """Whether the condition held in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True


def listens(port: int) -> bool:
    """Whether something accepts connections on the port of this machine."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def tail(path: Path, lines: int = 15) -> str:
    """The last lines of a log, with its name."""
    if not path.exists():
        return ""
    return f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
