"""What `make demo` prints of its download before it starts."""

import subprocess
import sys
import zipfile

import pytest

from tests.support.download_size import DRIVER
from tests.support.paths import REPOSITORY


def wheel(folder, name, *needs, extra=0):
    """A package that pip can install, of at least so many bytes."""
    info = f"{name.replace('-', '_')}-1.0.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", *(f"Requires-Dist: {need}" for need in needs)]
    with zipfile.ZipFile(folder / f"{name.replace('-', '_')}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{info}/METADATA", "\n".join(lines) + "\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
        archive.writestr("padding", b"\0" * extra)


def printed(folder, *requirements):
    command = [sys.executable, REPOSITORY / "tests/support/download_size.py", "--no-index", "--find-links", folder]
    done = subprocess.run([*command, *requirements], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_sum_over_all_that_is_needed(tmp_path):
    wheel(tmp_path, "one", "two", extra=2_000_000)
    wheel(tmp_path, "two", extra=3_000_000)
    assert printed(tmp_path, "one").startswith("to download: 5.0 MB in 2 packages (")


@pytest.mark.skipif(DRIVER.exists(), reason="an NVIDIA driver is here")
def test_a_cuda_build_without_a_gpu_is_reported(tmp_path):
    wheel(tmp_path, "torchlike", "nvidia-runtime", extra=1_000_000)
    wheel(tmp_path, "nvidia-runtime")
    assert "CUDA build" in printed(tmp_path, "torchlike")


def test_what_cannot_be_found_out_is_reported(tmp_path):
    assert "not known" in printed(tmp_path, "nothing-of-that-name")
