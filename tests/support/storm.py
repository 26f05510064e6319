"""Launch a sweep, kill its launcher and leaders at random moments, resume."""

import contextlib
import random
import subprocess
import time
from pathlib import Path

from tests.support import driving


def storm(directory, grid, executor, seed, kills, env=None, limit_s=240, pauses_s=(0.3, 2.5)):
    """Launch, kill at random moments, resume; how many of each kind were killed. ``pauses_s``: min, max between."""
    chance = random.Random(seed)
    killed = {"launcher": 0, "leader": 0}
    arguments = ["launch", grid, "--dir", directory, "--executor", executor, "--yes"]
    with Path(f"{directory}.out").open("ab") as output:
        launcher = driving.start(*arguments, env=env, output=output)
        deadline = time.monotonic() + limit_s
        while launcher.poll() != 0 and time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                launcher.wait(chance.uniform(*pauses_s) if sum(killed.values()) < kills else 5.0)
            if sum(killed.values()) < kills:
                kind = chance.choice(list(killed))
                if kind == "launcher" and launcher.poll() is None:
                    launcher.kill()
                    launcher.wait()
                    killed["launcher"] += 1
                for pid in driving.leader_pids(directory)[:1] if kind == "leader" else []:
                    killed["leader"] += driving.kill(pid)
            if launcher.poll() not in (None, 0):
                again = ["resume", directory] if (directory / "provenance.json").exists() else arguments
                launcher = driving.start(*again, env=env, output=output)
        assert launcher.poll() == 0, (directory.parent / f"{directory.name}.out").read_text()[-3000:]
    return killed
