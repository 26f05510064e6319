"""On a borrowed machine: unpack, run the parts that are not done, pack the results. Standard library only.

    python3 FOLDER/borrowed.py --seconds N --results DIR [--only PART ...] [--rehearse]

FOLDER is what `benchmarks.gpu_acceptance.carry` packed. All ends within N seconds. DIR gets at most three files:
results.md, heatmap.png, and state.tar.gz, which `carry --results DIR` takes for the next call, also after the machine's
disk was wiped. Exit code: that of the acceptance, 0 once every part has passed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

SOURCE, WHEELS, STATE = "source.tar.gz", "wheels", "state.tar.gz"
FILTER: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""not in Debian 12's Python 3.11.2; the archives are the user's own"""
STAYS = ("tokens.bin",)
"""made again there"""
MOST_STATE_BYTES = 5_000_000
"""so that the folder stays under 10 MB, and each result under 16"""
PACKING_S = 10.0
ENDING_S = 30.0
"""what the acceptance has to end a part that does not"""


def main() -> int:
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/gpu-acceptance"), help="the same in each call")
    parser.add_argument("--only", nargs="+", default=[], metavar="PART", help="these parts, not all")
    parser.add_argument("--rehearse", action="store_true", help="tiny models on the CPU")
    arguments = parser.parse_args()
    out = arguments.work / "out"
    environment = _unpacked(Path(__file__).resolve().parent, arguments.work, out)
    left = arguments.seconds - PACKING_S - (time.monotonic() - began)
    command = [sys.executable, "-m", "benchmarks.gpu_acceptance", "--out", str(out), "--seconds", f"{left:.0f}"]
    command += ["--only", *arguments.only] * bool(arguments.only)
    code = _run(command + ["--rehearse"] * arguments.rehearse, arguments.work / "source", environment, left)
    _pack(out, arguments.results)
    print(f"{time.monotonic() - began:.0f} s, exit code {code}", flush=True)
    return code


def _unpacked(folder: Path, work: Path, out: Path, *, install: bool = True) -> dict[str, str]:
    """Lay source, wheels and, where this disk has none, the state. Returns the environment to run in."""
    for name in ("source", "site"):
        shutil.rmtree(work / name, ignore_errors=True)
    with tarfile.open(folder / SOURCE) as packed:
        packed.extractall(work / "source", **FILTER)
    out.mkdir(parents=True, exist_ok=True)
    if (folder / STATE).exists() and not any(out.iterdir()):
        with tarfile.open(folder / STATE) as packed:
            packed.extractall(out, **FILTER)
    if install:
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile"]
        wheels = map(str, sorted((folder / WHEELS).glob("*.whl")))
        subprocess.run([*command, "--target", str(work / "site"), *wheels], check=True)
    paths = [str(work / "source"), str(work / "site"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _run(command: list[str], directory: Path, environment: dict[str, str], seconds: float) -> int:
    child = subprocess.Popen(command, cwd=directory, env=environment, stdin=subprocess.DEVNULL)
    for number, limit_s in ((signal.SIGTERM, max(0.0, seconds - ENDING_S)), (signal.SIGKILL, ENDING_S)):
        try:
            return child.wait(limit_s)
        except subprocess.TimeoutExpired:
            child.send_signal(number)
    return child.wait()


def _pack(out: Path, results: Path) -> None:
    """The smallest files first: journals before logs and traces, where not all fit."""
    results.mkdir(parents=True, exist_ok=True)
    files = [path for path in out.rglob("*") if path.is_file() and not path.is_symlink() and path.name not in STAYS]
    with (results / STATE).open("wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as packed:
        for path in (path for path in out.rglob("*") if path.is_dir()):
            packed.add(path, path.relative_to(out), recursive=False)
        for path in sorted(files, key=lambda path: path.stat().st_size):
            if raw.seek(0, os.SEEK_END) + path.stat().st_size > MOST_STATE_BYTES:
                print(f"left out: {path.relative_to(out)}, {path.stat().st_size:,} bytes")
                continue
            packed.add(path, path.relative_to(out))
    for name in ("results.md", "heatmap.png"):
        if (out / name).exists():
            shutil.copy(out / name, results)


if __name__ == "__main__":
    sys.exit(main())
