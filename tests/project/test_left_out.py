"""What a machine cannot run is listed at the end of the tests, with the command that would add it."""

import os
import subprocess
import sys

from tests.support.paths import REPOSITORY


def test_the_list_names_the_command_and_the_exit_status_is_0():
    """Also where the variable is set but empty, which names no folder."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/search/test_published.py"]
    env = {**os.environ, "SWEEP_REFERENCE_DATA": ""}
    done = subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "tests: SWEEP_REFERENCE_DATA is not set" in done.stdout
    assert "this adds those for SWEEP_REFERENCE_DATA:  make test SWEEP_REFERENCE_DATA=FOLDER" in done.stdout
