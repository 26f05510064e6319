"""What `make demo` prints of its download before it starts."""

import subprocess
import sys
import zipfile

import pytest

from tests.support.download_size import DRIVER
from tests.support.paths import REPOSITORY


def wheel(folder, name, *needs, version="1.0", extra=0):
    """A package that pip can install, of at least so many bytes."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {need}" for need in needs),
    ]
    with zipfile.ZipFile(folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{info}/METADATA", "\n".join(lines) + "\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
        archive.writestr("padding", b"\0" * extra)


def printed(folder, *words):
    command = [sys.executable, REPOSITORY / "tests/support/download_size.py", *words[:-1]]
    done = subprocess.run(
        [*command, "--no-index", "--find-links", folder, words[-1]], capture_output=True, text=True, check=False
    )
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


@pytest.mark.skipif(DRIVER.exists(), reason="an NVIDIA driver is here")
def test_the_cpu_build_is_taken_where_there_is_one(tmp_path):
    """pip itself takes 1.0+cu130, which is above 1.0+cpu in the order of versions."""
    wheel(tmp_path, "torchlike", "nvidia-runtime", version="1.0+cu130", extra=3_000_000)
    wheel(tmp_path, "torchlike", version="1.0+cpu", extra=1_000_000)
    wheel(tmp_path, "nvidia-runtime", extra=9_000_000)
    found = printed(tmp_path, "--write", tmp_path / "chosen", "torchlike==1.0")
    assert found.startswith("to download: 1.0 MB in 1 package")
    assert "CUDA" not in found
    assert (tmp_path / "chosen").read_text() == "torchlike==1.0+cpu"


@pytest.mark.parametrize("requirement", ["one==1.0", "one", "nothing-of-that-name==1.0"])
def test_any_other_requirement_is_taken_as_it_is(tmp_path, requirement):
    wheel(tmp_path, "one")
    printed(tmp_path, "--write", tmp_path / "chosen", requirement)
    assert (tmp_path / "chosen").read_text() == requirement


def test_what_cannot_be_found_out_is_reported(tmp_path):
    assert "not known" in printed(tmp_path, "nothing-of-that-name")
