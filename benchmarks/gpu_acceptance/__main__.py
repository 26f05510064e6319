"""Run the parts that are not done yet, and write the results.

    python -m benchmarks.gpu_acceptance [--out DIR] [--seconds N] [--only PART ...] [--again PART ...] [--rehearse]

Needs one GPU, the package with its torch extra and this repository. Interrupted or out of time, run it again: parts
that are done keep their results, those that never ran come first, those that failed last.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu_acceptance.page import write_pages
from benchmarks.gpu_acceptance.parts import FAILED, PARTS, PASSED, TIMED_OUT, Check, Part, Result, Setting
from benchmarks.gpu_acceptance.processes import end_sweeps, foreign_processes
from sweep.inputs.detect import detect_site
from sweep.plugins import load_object

GRACE_S = 20.0
"""beyond a part's limit, to write what it has; and once more to end what it left"""
LEAST_S = 50.0
"""a part is not begun with less: its sweep needs END_S to end, and 10 s to begin"""


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
    deadline = time.monotonic() + arguments.seconds
    asked = [part for part in PARTS if not arguments.only or part.name in arguments.only]
    for part in in_turn(asked, out, arguments.again):
        if _is_done(out / f"{part.name}.json") and part.name not in arguments.again:
            print(f"{part.name}: done already", flush=True)
            continue
        limit_s = min(part.limit_s, deadline - time.monotonic() - 2 * GRACE_S)
        if limit_s < LEAST_S:
            print(f"{part.name}: no time left", flush=True)
            continue
        end_sweeps(out)
        if foreign := foreign_processes():
            print(f"the GPU is busy: {', '.join(foreign)}; end these first", file=sys.stderr)
            return 2
        _run_apart(part, out, gpu, limit_s, tiny=arguments.rehearse)
        write_pages(out, gpu)
    return 0 if all(_is_done(out / f"{part.name}.json") for part in asked) else 1


def in_turn(parts: Sequence[Part], out: Path, again: Sequence[str] = ()) -> list[Part]:
    """Parts that never ran first, then those to repeat, then those that failed: a failing one starves none under short
    calls.
    """

    def turn(part: Part) -> int:
        return 0 if not (out / f"{part.name}.json").exists() else 1 if part.name in again else 2

    return sorted(parts, key=turn)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [part.name for part in PARTS]
    parser.add_argument("--out", type=Path, default=Path("gpu-acceptance"))
    parser.add_argument("--only", nargs="+", choices=names, default=[])
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin and cut parts so that all ends within")
    parser.add_argument("--again", nargs="+", choices=names, default=[])
    parser.add_argument("--rehearse", action="store_true", help="tiny models on the CPU")
    parser.add_argument("--part", choices=names, help=argparse.SUPPRESS)
    parser.add_argument("--gpu", help=argparse.SUPPRESS)
    parser.add_argument("--part-seconds", type=float, help=argparse.SUPPRESS)
    return parser.parse_args()


def _is_done(path: Path) -> bool:
    return path.exists() and json.loads(path.read_text())["status"] == PASSED


def _run_apart(part: Part, out: Path, gpu: str, limit_s: float, *, tiny: bool) -> None:
    """In a session of its own, so that a crash, a hang or a corrupt CUDA context ends only this part."""
    command = [sys.executable, "-m", "benchmarks.gpu_acceptance", "--part", part.name, "--gpu", gpu, "--out", str(out)]
    command += ["--part-seconds", str(limit_s)]
    began = time.monotonic()
    with (out / f"{part.name}.log").open("wb") as log:
        child = subprocess.Popen(
            command + ["--rehearse"] * tiny, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
        try:
            child.wait(limit_s + GRACE_S)
        except (KeyboardInterrupt, SystemExit):
            _end(child, out)
            raise
        except subprocess.TimeoutExpired:
            _end(child, out)
            _note(out / f"{part.name}.json", TIMED_OUT, time.monotonic() - began, f"over {limit_s:.0f} s")
    if child.returncode and child.returncode > 0 and not (out / f"{part.name}.json").exists():
        _note(out / f"{part.name}.json", FAILED, time.monotonic() - began, f"exit code {child.returncode}, see the log")
    status = json.loads((out / f"{part.name}.json").read_text())["status"]
    print(f"{part.name}: {status}, {time.monotonic() - began:.0f} s", flush=True)


def _end(child: subprocess.Popen[bytes], out: Path) -> None:
    """The part's process, and the sweep that it may have left."""
    _kill(child)
    end_sweeps(out)


def _kill(child: subprocess.Popen[bytes]) -> None:
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
    setting = Setting(out, arguments.gpu, arguments.rehearse, arguments.part_seconds)
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
