"""Launch a sweep, kill processes of it at random moments, resume until all is measured."""

import contextlib
import random
import subprocess
import time
from collections import Counter
from pathlib import Path

from tests.support import driving
from tests.support.process_kinds import find

KINDS = ("launcher", "leader", "agent", "fork server", "rank")


def storm(directory, grid, executor, seed, kills, kinds=KINDS[:2], env=None, limit_s=240, pauses_s=(0.3, 2.5)):
    """How many of each kind were killed, each as often as there was one to kill. ``pauses_s``: min, max between."""
    chance = random.Random(seed)
    killed = Counter(dict.fromkeys(kinds, 0))
    arguments = driving.launch_words(directory.parent, grid, executor=executor)
    with Path(f"{directory}.out").open("ab") as output:
        launcher = driving.start(*arguments, env=env, output=output)
        deadline = time.monotonic() + limit_s
        while launcher.poll() != 0 and time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                launcher.wait(chance.uniform(*pauses_s) if killed.total() < kills else 5.0)
            if killed.total() < kills:
                kind = chance.choice(kinds)
                if kind == "launcher":
                    living = [launcher] if launcher.poll() is None else []
                else:
                    living = find(kind, directory, launcher) if (directory / "provenance.json").exists() else []
                if living:
                    killed[kind] += driving.kill(chance.choice(living).pid)
            if launcher.poll() not in (None, 0):
                again = ["resume", directory] if (directory / "provenance.json").exists() else arguments
                launcher = driving.start(*again, env=env, output=output)
        assert launcher.poll() == 0, (directory.parent / f"{directory.name}.out").read_text()[-3000:]
    return killed
