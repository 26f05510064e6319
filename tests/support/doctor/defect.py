"""Starts an agent on a node that is defective: `python defect.py NODE=DEFECT,... COMMAND ...`, a container prefix.

Each defect is a real one where this machine can have it; the others replace one reader, as said there.
"""

import os
import resource
import shlex
import sys
import tempfile
import time
from pathlib import Path

CPU_CGROUP = Path("/sys/fs/cgroup/cpu")
REPLACED = Path(__file__).parent / "replaced"


def main() -> None:
    defects = dict(one.split("=") for one in sys.argv[1].split(",") if one)
    command = sys.argv[2:]
    node = os.environ.get("SLURMD_NODENAME") or command[command.index("--node") + 1]
    if (defect := defects.get(node)) is not None:
        command = globals()[defect](command)
    os.execvp(command[0], command)


def locked_memory(command: list[str]) -> list[str]:
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (4096, 4096))
    return command


def full_shared_memory(command: list[str]) -> list[str]:
    """A mount namespace of its own, whose /dev/shm is nearly full."""
    script = "mount -t tmpfs -o size=16m none /dev/shm && head -c 12m /dev/zero > /dev/shm/left && exec " + shlex.join(
        command
    )
    return ["unshare", "-m", "sh", "-c", script]


def other_torch(command: list[str]) -> list[str]:
    folder = Path(tempfile.mkdtemp(prefix="other-torch-"))
    info = folder / "torch-2.5.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.5.1\n")
    return first_on_path(command, folder)


def half_the_cpu(command: list[str]) -> list[str]:
    """Of this machine's CPU time, for this node and all that it starts."""
    return with_share(command, 0.5)


def hidden_quota(command: list[str]) -> list[str]:
    """A tenth of this machine's CPU time, and no files of cgroups, as in some containers: only its speed shows it."""
    script = "mount -t tmpfs none /sys/fs/cgroup && exec " + shlex.join(with_share(command, 0.1))
    return ["unshare", "-m", "sh", "-c", script]


def with_share(command: list[str], share: float) -> list[str]:
    """A cgroup with this share of the machine's CPU time."""
    group = CPU_CGROUP / f"sweep-doctor-{os.getpid()}"
    group.mkdir()
    period = int((group / "cpu.cfs_period_us").read_text())
    (group / "cpu.cfs_quota_us").write_text(str(int((os.cpu_count() or 1) * period * share)))
    (group / "cgroup.procs").write_text(str(os.getpid()))
    return command


def never_starts(command: list[str]) -> list[str]:
    """Not while the run lasts: then it leaves, as the scheduler would end it."""
    time.sleep(30)
    raise SystemExit(1)


def wrong_clock(command: list[str]) -> list[str]:
    """The clock's reader is replaced: a machine has one clock."""
    return replaced(command, "clock")


def unreadable_sensor(command: list[str]) -> list[str]:
    """The reader of shared memory is replaced by one that may not read it."""
    return replaced(command, "sensor")


def hangs_in_collective(command: list[str]) -> list[str]:
    """Its ranks never take part in the first exchange."""
    return replaced(command, "exchange")


def replaced(command: list[str], what: str) -> list[str]:
    os.environ["DEFECT"] = what
    return first_on_path(command, REPLACED)


def first_on_path(command: list[str], folder: Path) -> list[str]:
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return command


if __name__ == "__main__":
    main()
