"""A fake leader module for tests of the local executor: `python -m tests.support.local_pilot DIR NAME`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from sweep.executors.local import own_job_id


def main(sweep_dir: str, pilot: str) -> None:
    here = Path(sweep_dir) / "pilots" / pilot
    seen = {"job_id": own_job_id(), "environment": dict(os.environ), "session": os.getsid(0), "pid": os.getpid()}
    child = subprocess.Popen(["sleep", "60"])

    def end(number: int, frame: object) -> None:
        child.kill()
        (here / "terminated").touch()
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    print("begun", flush=True)
    print("warned", file=sys.stderr, flush=True)
    (here / ".seen").write_text(json.dumps(seen))
    (here / ".seen").rename(here / "seen.json")
    for _ in range(600):
        time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
