"""The acceptance on a GPU, rehearsed on a CPU with tiny models: its first run on hardware is not its first run."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks.gpu_acceptance.page import page
from benchmarks.gpu_acceptance.parts import PARTS, Check, Result
from sweep.plugins import load_object
from tests.support.paths import REPOSITORY

SHORT = ("environment", "layouts-8b", "processes")
"""what every test run rehearses; `make test-long` rehearses all"""


def rehearse(out, *words) -> subprocess.CompletedProcess:
    pytest.importorskip("torch")
    command = [sys.executable, "-m", "benchmarks.gpu_acceptance", "--rehearse", "--out", str(out), *words]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=1200, check=False)


def check_results(out, names) -> None:
    found = json.loads((out / "results.json").read_text())
    wrong = {
        name: [check for check in part["checks"] if check["holds"] is False] for name, part in found["parts"].items()
    }
    assert {name: part["status"] for name, part in found["parts"].items()} == dict.fromkeys(names, "passed"), wrong
    text = (out / "results.md").read_text()
    assert all(part.title in text for part in PARTS)


def test_a_rehearsal_of_some_parts_and_what_is_done_is_not_repeated(tmp_path):
    done = rehearse(tmp_path, "--only", *SHORT)
    assert done.returncode == 0, done.stdout + done.stderr
    check_results(tmp_path, SHORT)
    again = rehearse(tmp_path, "--only", *SHORT)
    assert again.stdout.splitlines() == [f"{name}: done already" for name in SHORT]


@pytest.mark.long
def test_a_rehearsal_of_all_parts(tmp_path):
    done = rehearse(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    check_results(tmp_path, [part.name for part in PARTS])
    assert (tmp_path / "heatmap.png").exists()


def test_parts_fit_in_the_time_that_the_issue_allows():
    assert max(part.limit_s for part in PARTS) < 8 * 60
    assert sum(part.limit_s for part in PARTS) <= 40 * 60
    for part in PARTS:
        assert callable(load_object(part.run))


def test_without_a_gpu_it_refuses(tmp_path):
    from sweep.inputs.detect import detect_site

    if detect_site("local")["gpu"] != "cpu":
        pytest.skip("this machine has a GPU")
    command = [sys.executable, "-m", "benchmarks.gpu_acceptance", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no GPU that nvidia-smi lists" in done.stderr


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
