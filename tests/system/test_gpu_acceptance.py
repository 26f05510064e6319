"""The acceptance on a GPU, rehearsed on a CPU with tiny models: its first run on hardware is not its first run."""

import json
import os
import signal
import subprocess
import sys

import pytest

from benchmarks.gpu_acceptance.page import page
from benchmarks.gpu_acceptance.parts import PARTS, Check, Result
from benchmarks.gpu_acceptance.processes import end_sweeps, of_sweep
from benchmarks.gpu_acceptance.sweeps import SWEEP, wait_for
from tests.support.made_sweeps import GRID
from tests.support.paths import REPOSITORY


def rehearse(out) -> subprocess.CompletedProcess:
    pytest.importorskip("torch")
    command = [sys.executable, "-m", "benchmarks.gpu_acceptance", "--rehearse", "--out", str(out)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=1200, check=False)


def check_results(out, names) -> None:
    found = json.loads((out / "results.json").read_text())
    wrong = {
        name: [check for check in part["checks"] if check["holds"] is False] for name, part in found["parts"].items()
    }
    assert {name: part["status"] for name, part in found["parts"].items()} == dict.fromkeys(names, "passed"), wrong
    text = (out / "results.md").read_text()
    assert all(part.title in text for part in PARTS)


@pytest.mark.long
def test_a_rehearsal_of_all_parts_and_what_is_done_is_not_repeated(tmp_path):
    done = rehearse(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    check_results(tmp_path, [part.name for part in PARTS])
    assert (tmp_path / "heatmap.png").exists()
    assert rehearse(tmp_path).stdout.splitlines() == [f"{part.name}: done already" for part in PARTS]


def test_what_a_part_left_behind_is_ended_before_the_next(tmp_path):
    path = tmp_path / "left.yaml"
    path.write_text(GRID.replace("iterations: 3", "iterations: 100000"))
    words = ["launch", str(path), "--dir", str(tmp_path / "left"), "--executor", "local", "--yes"]
    launcher = subprocess.Popen([*SWEEP, *words], stdin=subprocess.DEVNULL, start_new_session=True)
    assert wait_for(lambda: any((tmp_path / "left" / "claims").glob("*")), 60)
    os.killpg(launcher.pid, signal.SIGKILL)
    launcher.wait()
    assert of_sweep(tmp_path / "left")
    end_sweeps(tmp_path)
    assert not of_sweep(tmp_path / "left")


def test_a_part_fails_by_its_checks_only():
    found = Result(checks=[Check("a", True), Check("b", None)])
    assert found.passed
    found.checks.append(Check("c", False, "why | not"))
    assert not found.passed
    shown = page(
        {"truth": {"status": "failed", "seconds": 1.0, "facts": {}, "rows": [], "checks": [vars(found.checks[-1])]}},
        "h100",
    )
    assert "| c | **no** | why / not |" in shown
    assert "| Losses and gradient norms against one plain process | failed | 1 | 0 of 1 hold |" in shown
