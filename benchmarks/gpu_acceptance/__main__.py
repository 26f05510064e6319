"""Run the parts that are not done yet, and write the results.

    python -m benchmarks.gpu_acceptance [--out DIR] [--only PART ...] [--again PART ...] [--rehearse]

Needs one GPU, the package with its torch extra and this repository. Interrupted or out of time, run it again: parts
that are done keep their results.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

from benchmarks.gpu_acceptance.page import write_pages
from benchmarks.gpu_acceptance.parts import FAILED, PARTS, PASSED, TIMED_OUT, Check, Part, Result, Setting
from sweep.inputs.detect import detect_site
from sweep.plugins import load_object

GRACE_S = 20.0
"""beyond a part's limit, to write what it has"""


def main() -> int:
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if arguments.part:
        return _run_here(next(part for part in PARTS if part.name == arguments.part), out, arguments)
    gpu = "cpu" if arguments.rehearse else str(detect_site("local")["gpu"])
    if gpu == "cpu" and not arguments.rehearse:
        print("this machine has no GPU that nvidia-smi lists; --rehearse runs tiny models on the CPU", file=sys.stderr)
        return 2
    for part in PARTS:
        if arguments.only and part.name not in arguments.only:
            continue
        if _is_done(out / f"{part.name}.json") and part.name not in arguments.again:
            print(f"{part.name}: done already", flush=True)
            continue
        _run_apart(part, out, gpu, tiny=arguments.rehearse)
        write_pages(out, gpu)
    asked = [part for part in PARTS if not arguments.only or part.name in arguments.only]
    return 0 if all(_is_done(out / f"{part.name}.json") for part in asked) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [part.name for part in PARTS]
    parser.add_argument("--out", type=Path, default=Path("gpu-acceptance"))
    parser.add_argument("--only", nargs="+", choices=names, default=[])
    parser.add_argument("--again", nargs="+", choices=names, default=[])
    parser.add_argument("--rehearse", action="store_true", help="tiny models on the CPU")
    parser.add_argument("--part", choices=names, help=argparse.SUPPRESS)
    parser.add_argument("--gpu", help=argparse.SUPPRESS)
    return parser.parse_args()


def _is_done(path: Path) -> bool:
    return path.exists() and json.loads(path.read_text())["status"] == PASSED


def _run_apart(part: Part, out: Path, gpu: str, *, tiny: bool) -> None:
    """In a session of its own, so that a crash, a hang or a corrupt CUDA context ends only this part."""
    command = [sys.executable, "-m", "benchmarks.gpu_acceptance", "--part", part.name, "--gpu", gpu, "--out", str(out)]
    began = time.monotonic()
    with (out / f"{part.name}.log").open("wb") as log:
        child = subprocess.Popen(
            command + ["--rehearse"] * tiny, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
        try:
            child.wait(part.limit_s + GRACE_S)
        except (KeyboardInterrupt, SystemExit):
            _end(child)
            raise
        except subprocess.TimeoutExpired:
            _end(child)
            _note(out / f"{part.name}.json", TIMED_OUT, time.monotonic() - began, f"over {part.limit_s:g} s")
    if child.returncode and child.returncode > 0 and not (out / f"{part.name}.json").exists():
        _note(out / f"{part.name}.json", FAILED, time.monotonic() - began, f"exit code {child.returncode}, see the log")
    status = json.loads((out / f"{part.name}.json").read_text())["status"]
    print(f"{part.name}: {status}, {time.monotonic() - began:.0f} s", flush=True)


def _end(child: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(10)
            return


def _note(path: Path, status: str, seconds: float, why: str) -> None:
    Result(checks=[Check("the part ends in time and without an error", False, why)]).write(path, status, seconds)


def _run_here(part: Part, out: Path, arguments: argparse.Namespace) -> int:
    """In the part's own process."""
    path, began = out / f"{part.name}.json", time.monotonic()
    path.unlink(missing_ok=True)
    setting = Setting(out, arguments.gpu, arguments.rehearse, part.limit_s)
    try:
        result = load_object(part.run)(setting)
    except Exception:  # whatever a part raises is its result
        traceback.print_exc()
        _note(path, FAILED, time.monotonic() - began, traceback.format_exc(limit=-3))
        return 1
    result.write(path, PASSED if result.passed else FAILED, time.monotonic() - began)
    return 0


if __name__ == "__main__":
    sys.exit(main())
