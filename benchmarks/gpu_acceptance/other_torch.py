"""The carried rehearsal and the workload's tests on another torch, with its own wheel from pip's usual index.

    python -m benchmarks.gpu_acceptance.other_torch DIR --python PYTHON [--torch torch==2.11.0] [--seconds N]

DIR gets an environment, packed folders and results; what is there already is not made again. On Linux the wheel is the
build for CUDA: gigabytes, which are announced first. It imports without a driver.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import urllib.request
from importlib.metadata import requires
from pathlib import Path

from benchmarks.gpu_acceptance.carry import PACKAGES, REPOSITORY

TESTS = "tests/bench_workloads"
FOR_TESTS = ("pytest<9", "pytest-timeout", "pytest-xdist", "hypothesis", "packaging")
MOST_CALLS = 4
LATER_S = 600
"""of the calls after the first: time for any part"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--python", required=True, help="an interpreter of the version there, such as python3.12")
    parser.add_argument("--torch", default="torch==2.11.0")
    parser.add_argument("--seconds", type=float, default=150, help="of the first call: short enough to cut a part")
    arguments = parser.parse_args()
    directory: Path = arguments.directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    python = _environment(directory / "venv", arguments.python, arguments.torch)
    if code := _rehearse(python, directory, arguments.seconds):
        return code
    subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES, *FOR_TESTS], check=True)
    command = [python, "-m", "pytest", TESTS, "-m", "not long", "--timeout=600"]
    return subprocess.run(command, cwd=REPOSITORY, check=False).returncode


def _environment(path: Path, python: str, torch: str) -> str:
    """torch and what an image has beside it, but not what is carried. Returns its interpreter."""
    made = str(path / "bin" / "python")
    if not (path / "complete").exists():
        subprocess.run([python, "-m", "venv", str(path)], check=True)
        others = [name for name in requires("trainsweep") or () if ";" not in name and not name.startswith(PACKAGES)]
        wanted = [torch, "nvidia-ml-py", *others]
        _announce(made, path / "report.json", wanted)
        subprocess.run([made, "-m", "pip", "install", "-q", *wanted], check=True)
        (path / "complete").touch()
    check = "import torch; print(torch.__version__, 'CUDA build' if torch.version.cuda else 'CPU build')"
    subprocess.run([made, "-c", check], check=True)
    return made


def _announce(python: str, report: Path, wanted: list[str]) -> None:
    command = [python, "-m", "pip", "install", "-q", "--dry-run", "--report", str(report), *wanted]
    subprocess.run(command, check=True)
    sizes = {}
    for package in json.loads(report.read_text())["install"]:
        url = package["download_info"]["url"]
        if url.startswith("https:"):
            with urllib.request.urlopen(urllib.request.Request(url, method="HEAD")) as answer:
                sizes[package["metadata"]["name"]] = int(answer.headers["Content-Length"] or 0)
    largest = ", ".join(f"{name} {sizes[name] / 1e6:,.0f}" for name in sorted(sizes, key=lambda n: -sizes[n])[:5])
    print(f"to download: {sum(sizes.values()) / 1e6:,.0f} MB (MB: {largest}, ...)", flush=True)


def _rehearse(python: str, directory: Path, seconds: float) -> int:
    """Call after call, each on a wiped disk, until all parts have passed."""
    code = 1
    work, results = directory / "work", None
    for call in range(1, MOST_CALLS + 1):
        folder, new = directory / f"carried-{call}", directory / f"results-{call}"
        for path in (work, folder, new):
            shutil.rmtree(path, ignore_errors=True)
        words = ["--results", str(results)] if results else []
        subprocess.run([sys.executable, "-m", "benchmarks.gpu_acceptance.carry", str(folder), *words], check=True)
        limit = seconds if call == 1 else LATER_S
        command = [python, str(folder / "borrowed.py"), "--seconds", str(limit), "--results", str(new)]
        command += ["--work", str(work), "--rehearse"]
        print(f"call {call}", flush=True)
        code = subprocess.run(command, cwd=directory, check=False).returncode
        if not code:
            break
        results = new
    return code


if __name__ == "__main__":
    sys.exit(main())
