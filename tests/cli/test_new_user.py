"""What a new user meets first: a table of another format, several mistakes, a grid without runs, no directory named."""

import pytest

from sweep.outcomes import Outcome
from tests.support.made_sweeps import made, measured, pilot_wrote


@pytest.mark.parametrize("name", ["heatmap", "report", "best"])
def test_a_csv_is_pointed_to_import(name, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("model,nodes,tokens_per_second_per_gpu\n1B,1,100\n")
    err = command.refused(name, "t.csv")
    assert err == "error: t.csv: a table of its own format, not results (`sweep import t.csv` converts it)\n"


@pytest.mark.parametrize("words", [("status",), ("explain", "RUN"), ("resume",)])
def test_the_sweep_that_was_taken_is_printed_where_none_is_named(words, tmp_path, monkeypatch, command):
    sweep = measured(tmp_path / "s")
    monkeypatch.chdir(tmp_path)
    _, _, err = command(*(sweep.runs[0].run_id if word == "RUN" else word for word in words))
    assert "sweep: s\n" in err


def test_the_status_has_the_directory_the_launcher_the_latest_and_the_winner(tmp_path, command):
    sweep = made(tmp_path / "s")
    pilot_wrote(sweep, "p0001", (sweep.runs[0].run_id, 1, Outcome.OK))
    document = command.json("status", tmp_path / "s")
    assert (document["directory"], document["launcher"]) == (str(tmp_path / "s"), None)
    _, out, _ = command("status", tmp_path / "s")
    assert out.splitlines()[0] == f"{tmp_path}/s; no launcher runs"
    assert "best so far" in out
    assert sweep.runs[0].run_id[:40] in out.partition("latest\n")[2]
