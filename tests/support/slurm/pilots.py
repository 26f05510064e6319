"""Stand-ins for a pilot's main function, for tests of the way there. Imported on the pretend nodes."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path


def tell(sweep_dir: str, pilot: str) -> None:
    """Leave what the job sees, then end well."""
    seen = {
        "argv": sys.argv,
        "cwd": str(Path.cwd()),
        "environment": dict(os.environ),
        "core_limit": resource.getrlimit(resource.RLIMIT_CORE),
        "parent": Path(f"/proc/{os.getppid()}/comm").read_text().strip(),
    }
    (Path(sweep_dir) / "pilots" / pilot / "seen.json").write_text(json.dumps(seen))
    print(f"told of {pilot}")
    print("and on stderr", file=sys.stderr)


def stay(sweep_dir: str, pilot: str) -> None:
    """Stay until SIGTERM, and say that it came."""
    here = Path(sweep_dir) / "pilots" / pilot

    def end(number: int, frame: object) -> None:
        (here / "terminated").touch()
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    (here / "staying").touch()
    for _ in range(600):
        time.sleep(0.1)


def fail(sweep_dir: str, pilot: str) -> None:
    """End badly, though not within the first second: Slurm 22.05's accounting then may lose the eligible time."""
    time.sleep(2)
    raise RuntimeError(f"{pilot} fails on purpose")
