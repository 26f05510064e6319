"""`sweep plan` and the example grids."""

import json
import os
from functools import cache

import pytest

from sweep.inputs.load import parse_grid
from sweep.library import plan as library
from sweep.planning.build import build
from sweep.search.candidates import from_plan
from tests.support.paths import REPOSITORY

ROOT = REPOSITORY
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


@cache
def plan_of(name):
    path = ROOT / "examples" / f"{name}.yaml"
    grid = parse_grid(path.read_text(), str(path))
    return build(grid, grid.site)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_has_runs(path, command):
    code, out, err = command("plan", path, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["name"] == path.stem
    assert found["runs"] >= 10
    empty = {(cell["model"], cell["nodes"]) for cell in found["cells"] if not cell["runs"]}
    # 80 billion parameters at 18 bytes are 1.4 TB: 16 GPUs of 80 GB have 1.3.
    assert empty == ({("80B", 1), ("80B", 2)} if path.stem == "ultrascale" else set())
    if path.stem == "ultrascale":
        assert found["expected"]["guided"]["node_hours"] < found["predicted_node_hours"] / 4


def test_a_plan_says_whose_switches_it_takes(tmp_path, command, monkeypatch):
    clients = tmp_path / "scontrol"
    clients.write_text("#!/bin/sh\necho 'BlockName=rack1 BlockIndex=0 Nodes=n[1-18] BlockSize=18'\n")
    clients.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    stated = "-o", "site.fabric={domain_nodes: 4, domains: 2, switch_nodes: 8, switches: 1}"
    notes = [command("plan", ROOT / "examples" / "laptop.yaml", *options)[2] for options in ((), stated)]
    assert "as this machine's Slurm has them" in notes[0]
    assert notes[1] == ""


def test_smollm3_holds_the_published_layout():
    layouts = [planned.run().layout for planned in plan_of("smollm3-384").runs]
    wanted = {"dp": 192, "tp": 2, "pp": 1, "micro_batch_size": 3, "grad_accum": 1, "zero": 0, "recompute": "none"}
    (found,) = [layout for layout in layouts if all(getattr(layout, k) == v for k, v in wanted.items())]
    assert found.gpus == 384


def test_the_laptop_sweep_is_small_and_has_every_kind_of_layout():
    runs = [planned.run() for planned in plan_of("laptop").runs]
    assert 10 <= len(runs) <= 16
    assert {(run.model, run.nodes) for run in runs} == {(m, n) for m in ("tiny-1M", "tiny-4M") for n in (1, 2)}
    for model in ("tiny-1M", "tiny-4M"):
        layouts = [run.layout for run in runs if run.model == model]
        assert {1, 2} == {layout.tp for layout in layouts} == {layout.pp for layout in layouts}
    assert max(run.gpus for run in runs) == 4


def test_tables_name_cells_and_reasons_and_many_node_counts_are_lines(command):
    out = command.shown("plan", ROOT / "examples" / "smollm3-384.yaml", "-o", "nodes={from: 40, to: 72}")
    assert all(f"│ {nodes} nodes " in out for nodes in range(40, 73))
    assert "SmolLM3-3B" in out
    assert "tp=3 does not divide the 16 attention heads" in out or "16 heads cannot be split over tp=3" in out
    assert "node-hours" in out


def test_show_rejected_gives_every_candidate_with_every_reason(command):
    path = ROOT / "examples" / "laptop.yaml"
    _, out, _ = command("plan", path, "--json", "--show", "rejected")
    document = json.loads(out)
    assert len(document["rejected_candidates"]) == document["rejected"]
    assert all(row["reasons"] for row in document["rejected_candidates"])
    _, out, _ = command("plan", path, "--show", "rejected")
    lines = out.splitlines()
    assert len(lines) == document["rejected"]
    for line, row in zip(lines, document["rejected_candidates"], strict=True):
        assert all(reason in line for reason in row["reasons"])


def test_runs_are_shown_with_what_is_predicted_of_them(command):
    path = ROOT / "examples" / "smollm3-384.yaml"
    _, out, _ = command("plan", path, "--show", "runs")
    rows = [row for row in plan_of("smollm3-384").table.to_pylist() if row["status"] == "run"]
    for line, row in zip(out.splitlines(), rows, strict=True):
        assert line.split()[0] == row["run_id"], "in the order of measuring"
        assert all(f" {name}={row[name]}" in line for name in ("recompute", "pp_schedule", "dtype")), line
        assert f"about {row['predicted_s']:.0f} s, " in line
        gib = row["predicted_peak_bytes"] / 2**30
        assert f"peak {gib:.{1 if gib >= 10 else 2}f} GiB" in line


@pytest.mark.parametrize("together", [6, 15])
def test_a_large_plan_is_simulated_in_parts_of_whole_cells(together, command, monkeypatch):
    whole = command.json("plan", ROOT / "examples" / "laptop.yaml")
    parts = []
    monkeypatch.setattr(library, "MOST_RUNS", together)
    monkeypatch.setattr(library, "from_plan", lambda runs, gpu: parts.append(runs) or from_plan(runs, gpu))
    expected = command.json("plan", ROOT / "examples" / "laptop.yaml")["expected"]["guided"]
    cells = [{(run.model, run.nodes) for run in part} for part in parts]
    assert sum(map(len, cells)) == len(set.union(*cells)) == len(whole["cells"]), "each cell in one part"
    assert [len({model for model, _ in part}) for part in cells] == [1] * len(parts)
    assert 1 < len(parts) < len(whole["cells"])
    assert sum(map(len, parts)) == whole["runs"] >= expected["runs"] > len(parts)


def test_the_plan_shows_what_will_be_searched_and_the_saving_expected_of_guided(command):
    words = ("plan", ROOT / "examples" / "laptop.yaml", "-o", "budget.runs=8")
    document = command.json(*words)
    assert (document["strategy"], document["budget"]) == ("guided", {"runs": 8})
    assert list(document["expected"]) == ["guided"]
    one = document["expected"]["guided"]
    assert one["runs"] == 8, "of 16 runs in four cells: the budget"
    assert 0 < one["node_hours"] < document["predicted_node_hours"]
    shown = command.shown(*words)
    assert "strategy: guided; budget: runs 8" in shown
    assert "guided: expected to measure 8 of 16 runs" in shown
    words = ("plan", ROOT / "examples" / "laptop.yaml", "-o", "strategy=exhaustive")
    assert list(command.json(*words)["expected"]) == ["exhaustive", "guided"]
    head = " ".join(command(*words)[1].split())
    assert "node-hours expected with exhaustive; all in full about" in head
