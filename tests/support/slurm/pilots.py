"""Fakes of a pilot's main function, for tests of its start. Imported on the virtual nodes; on this machine a module."""

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

from sweep.executors.local import LocalJob


def report(sweep_dir: str, pilot: str) -> None:
    """Write the job's environment, then exit with 0."""
    seen = {
        "argv": sys.argv,
        "cwd": str(Path.cwd()),
        "environment": dict(os.environ),
        "core_limit": resource.getrlimit(resource.RLIMIT_CORE),
        "parent": Path(f"/proc/{os.getppid()}/comm").read_text().strip(),
    }
    (Path(sweep_dir) / "pilots" / pilot / "seen.json").write_text(json.dumps(seen))
    print(f"pilot {pilot}")
    print("and on stderr", file=sys.stderr)


def stay(sweep_dir: str, pilot: str) -> None:
    """Write what it is, wait for SIGTERM, and report it."""
    here = Path(sweep_dir) / "pilots" / pilot

    def end(number: int, frame: object) -> None:
        (here / "terminated").touch()
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    print("begun", flush=True)
    print("warned", file=sys.stderr, flush=True)
    seen = {
        "job_id": LocalJob.of(os.getpid()).job_id,
        "environment": dict(os.environ),
        "session": os.getsid(0),
        "pid": os.getpid(),
    }
    (here / ".seen").write_text(json.dumps(seen))
    (here / ".seen").rename(here / "seen.json")
    for _ in range(600):
        time.sleep(0.1)


def fail(sweep_dir: str, pilot: str) -> None:
    """Fail, though not within the first second: Slurm 22.05's accounting then may lose the eligible time."""
    time.sleep(2)
    raise RuntimeError(f"{pilot} fails on purpose")


if __name__ == "__main__":
    stay(*sys.argv[1:])
