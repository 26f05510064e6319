"""The acceptance on a GPU, rehearsed on a CPU with tiny models: its first run on hardware is not its first run."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

import sweep
from benchmarks.gpu_acceptance import borrowed, carry, layouts
from benchmarks.gpu_acceptance.__main__ import in_turn
from benchmarks.gpu_acceptance.input_pipeline import grid_of_input
from benchmarks.gpu_acceptance.page import page
from benchmarks.gpu_acceptance.parts import PARTS, Check, Result, Setting
from benchmarks.gpu_acceptance.processes import end_sweeps, of_sweep
from benchmarks.gpu_acceptance.sweeps import END_S, SWEEP, swept_in, wait_for
from sweep.inputs.load import parse_grid
from sweep.outcomes import Outcome
from sweep.plugins import load_object
from tests.support.made_sweeps import GRID, made, pilot_wrote
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


def test_parts_fit_in_the_stated_time():
    assert max(part.limit_s for part in PARTS) < 8 * 60
    assert sum(part.limit_s for part in PARTS) <= 51 * 60
    for part in PARTS:
        assert callable(load_object(part.run))


@pytest.mark.parametrize("gpu", ["h100", "h200"])
def test_each_sweep_is_predicted_to_end_within_its_parts_limit(gpu, tmp_path):
    setting = Setting(tmp_path, gpu, False, 0.0)
    grids = {name: layouts.grid_of_part(setting, name) for name in layouts.AXES}
    tokens = tmp_path / "tokens.bin"
    tokens.write_bytes(bytes(2 << 20))
    grids["input"] = grid_of_input(setting, tokens)
    limits = {part.name: part.limit_s for part in PARTS}
    for name, text in grids.items():
        predicted_s = sum(run.expected_s for run in sweep.plan(parse_grid(text, name)).runs)
        assert predicted_s < limits[name] - END_S, name


def test_parts_that_never_ran_come_first_and_failed_ones_last(tmp_path):
    first, second, *others = PARTS
    Result([Check("a", False)]).write(tmp_path / f"{first.name}.json", "failed", 1.0)
    assert in_turn(PARTS, tmp_path) == [second, *others, first]
    Result([Check("a", True)]).write(tmp_path / f"{second.name}.json", "passed", 1.0)
    assert in_turn(PARTS, tmp_path, again=[second.name]) == [*others, second, first]


def test_a_run_that_was_cut_off_and_measured_later_is_measured(tmp_path):
    existing = made(tmp_path / "part")
    cut, other = existing.runs[:2]
    pilot_wrote(existing, "p0001", (cut.run_id, 1, Outcome.CANCELLED), (other.run_id, 1, Outcome.OK))
    pilot_wrote(existing, "p0002", (cut.run_id, 2, Outcome.OK))
    swept = swept_in(tmp_path / "part")
    assert {record["run_id"]: record["outcome"] for record in swept.records} == {cut.run_id: "ok", other.run_id: "ok"}
    assert swept.planned == len(existing.runs)


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


def test_results_of_a_borrowed_machine_fit_their_limit_and_are_the_state_of_the_next(tmp_path):
    out, results, folder = tmp_path / "out", tmp_path / "results", tmp_path / "folder"
    for name, size in (("sweep/journal/leader.jsonl", 9), ("trace.json", borrowed.MOST_STATE_BYTES), ("tokens.bin", 9)):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(os.urandom(size))
    (out / "sweep" / "leases").mkdir()
    (out / "results.md").write_text("found")
    borrowed._pack(out, results)
    assert (results / "results.md").read_text() == "found"
    assert (results / borrowed.STATE).stat().st_size < borrowed.MOST_STATE_BYTES
    (folder / borrowed.WHEELS).mkdir(parents=True)
    shutil.copy(results / borrowed.STATE, folder)
    carry._source(folder / borrowed.SOURCE)
    borrowed._unpacked(folder, tmp_path / "work", tmp_path / "work" / "out", install=False)
    found = {str(path.relative_to(tmp_path / "work" / "out")) for path in (tmp_path / "work" / "out").rglob("*")}
    assert found == {"sweep", "sweep/journal", "sweep/leases", "sweep/journal/leader.jsonl", "results.md"}
    command = [sys.executable, "-m", "benchmarks.gpu_acceptance", "--help"]
    subprocess.run(command, cwd=tmp_path / "work" / "source", check=True, capture_output=True)


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
