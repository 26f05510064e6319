"""The workload and the GPU acceptance on another torch: its own build for CUDA, on a machine without a driver."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.support.paths import REPOSITORY


@pytest.mark.long
@pytest.mark.timeout(5400)
def test_the_carried_acceptance_and_the_workloads_tests_on_torch_2_11(tmp_path_factory):
    """About 2 GB to download, where SWEEP_OTHER_TORCH does not name a folder that has the environment."""
    python = shutil.which("python3.12") or ""
    if not python or subprocess.run([python, "--version"], check=False, capture_output=True).returncode:
        pytest.skip("needs python3.12: none is found, or a version manager's stand-in that starts none")
    folder = os.environ.get("SWEEP_OTHER_TORCH") or tmp_path_factory.mktemp("other-torch")
    command = [sys.executable, "-m", "benchmarks.gpu_acceptance.other_torch", str(folder), "--python", python]
    done = subprocess.run(command, cwd=REPOSITORY, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
