"""Fakes of a pilot's main function, for tests of its start. Imported on the virtual nodes."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path


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
    """Wait for SIGTERM, and report it."""
    here = Path(sweep_dir) / "pilots" / pilot

    def end(number: int, frame: object) -> None:
        (here / "terminated").touch()
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    (here / "staying").touch()
    for _ in range(600):
        time.sleep(0.1)


def fail(sweep_dir: str, pilot: str) -> None:
    """Fail, though not within the first second: Slurm 22.05's accounting then may lose the eligible time."""
    time.sleep(2)
    raise RuntimeError(f"{pilot} fails on purpose")
