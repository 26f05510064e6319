"""What a new user meets first: a table of another format, several mistakes, a grid without runs, no directory named."""

import json

import pytest

from sweep.outcomes import Outcome
from tests.support.made_sweeps import GRID, made, pilot_wrote


@pytest.mark.parametrize("name", ["heatmap", "report", "best"])
def test_a_csv_is_pointed_to_import(name, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("model,nodes,tokens_per_second_per_gpu\n1B,1,100\n")
    code, out, err = command(name, "t.csv")
    assert (code, out) == (2, "")
    assert err == "error: t.csv: a table of its own format, not results (`sweep import t.csv` converts it)\n"


def test_an_import_writes_to_the_current_directory_and_names_the_next_step(tmp_path, monkeypatch, command):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    columns = {"model": "1B", "nodes": 1, "sequence_length": 128, "dp": 1, "tp": 1, "pp": 1, "micro_batch_size": 1}
    columns |= {"grad_accum": 1, "zero": 0, "gpu": "h100", "gpus_per_node": 1, "tokens_per_second_per_gpu": 100}
    (tmp_path / "t.csv").write_text(",".join(columns) + "\n" + ",".join(map(str, columns.values())) + "\n")
    code, _, err = command("import", tmp_path / "t.csv")
    assert code == 0, err
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["t.results.parquet"]
    assert "next: `sweep heatmap t.results.parquet` draws it" in err


def test_all_mistakes_of_a_list_and_of_the_constraints_are_reported_at_once(tmp_path, command):
    text = GRID + 'zero: [no, 1.5, five]\nconstraints: ["tp <= 4", "foo == 1", "tp ==", "dp * zz > 3"]\n'
    (tmp_path / "grid.yaml").write_text(text)
    code, out, err = command("plan", tmp_path / "grid.yaml")
    assert (code, out) == (2, "")
    lists, constraints = (
        next(line for line in err.splitlines() if f" {name}: " in line) for name in ("zero", "constraints")
    )
    assert all(f"found {value}" in lists for value in ("'no'", "1.5", "'five'"))
    assert "[1] unknown name 'foo'" in constraints
    assert "[2] this is not an expression" in constraints
    assert "[3] unknown name 'zz'" in constraints


def test_a_plan_without_runs_exits_as_its_launch_does(tmp_path, command):
    (tmp_path / "grid.yaml").write_text(GRID + 'constraints: ["tp == 3"]\n')
    planned = command("plan", tmp_path / "grid.yaml")
    launched = command("launch", tmp_path / "grid.yaml", "--dir", tmp_path / "s", "--yes", "--executor", "local")
    assert planned[0] == launched[0] == 2
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("words", [("status",), ("explain", "RUN"), ("resume",)])
def test_the_sweep_that_was_taken_is_printed_where_none_is_named(words, tmp_path, monkeypatch, command):
    sweep = made(tmp_path / "s")
    pilot_wrote(sweep, "p0001", *((run.run_id, 1, Outcome.OK) for run in sweep.runs))
    monkeypatch.chdir(tmp_path)
    _, _, err = command(*(sweep.runs[0].run_id if word == "RUN" else word for word in words))
    assert "sweep: s\n" in err


def test_the_status_has_the_directory_the_launcher_the_latest_and_the_winner(tmp_path, command):
    sweep = made(tmp_path / "s")
    pilot_wrote(sweep, "p0001", (sweep.runs[0].run_id, 1, Outcome.OK))
    document = json.loads(command("status", tmp_path / "s", "--json")[1])
    assert (document["directory"], document["launcher"]) == (str(tmp_path / "s"), None)
    _, out, _ = command("status", tmp_path / "s")
    assert out.splitlines()[0] == f"{tmp_path}/s; no launcher runs"
    assert "best so far" in out
    assert sweep.runs[0].run_id[:40] in out.partition("latest\n")[2]
