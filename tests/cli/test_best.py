"""`sweep best`, predictions and exports: complete, marked, and never surer than the data."""

import dataclasses
import json

import pandas as pd
import pytest
from rich.console import Console

from sweep.cli.best import table
from sweep.library.winners import CONFIGURATION, winners
from sweep.outcomes import Outcome
from sweep.physics.catalogue import MODELS
from sweep.records.collect import write_results
from tests.support.made_records import made_record, made_run
from tests.support.made_sweeps import GRID, made, measured, pilot_wrote

PREDICTABLE = GRID.replace("tiny-1M", "1B").replace("gpu: cpu", "gpu: h100").replace("fp32", "bf16")


@pytest.fixture
def results(tmp_path):
    """Two layouts on two node counts, one of them simulated."""
    shape = dataclasses.asdict(MODELS["1B"])
    runs = [made_run(zero=zero, nodes=nodes, dp=dp, shape=shape) for zero in (0, 1) for nodes, dp in ((1, 2), (2, 4))]
    path = tmp_path / "results.parquet"
    records = [made_record(run, (1.0 + 0.2 * at, 1.01 + 0.2 * at, 1.02 + 0.2 * at)) for at, run in enumerate(runs)]
    write_results(path, records)
    return path


def marked(path, tmp_path):
    """The same results, as a simulated workload's."""
    pd.read_parquet(path).assign(simulated=True).to_parquet(tmp_path / "simulated.parquet")
    return tmp_path / "simulated.parquet"


def test_the_table_has_a_row_per_cell_and_how_sure_it_is(results, command):
    out = command.shown("best", results)
    assert out.count("the spread") == 2
    assert "within one run" in " ".join(out.split())
    assert {(row["nodes"], row["verdict"]) for row in command.json("best", results)} == {(1, "leads"), (2, "leads")}


def test_a_blank_mfu_on_a_cpu_has_its_reason_and_a_unit_is_shown_once(tmp_path, command):
    write_results(tmp_path / "r.parquet", [made_record(made_run(), gpu="cpu")])
    out = command.shown("best", tmp_path / "r.parquet")
    assert "MFU is blank on a CPU: it is relative to a GPU's peak FLOP/s." in out
    assert (out.count("tokens/s/GPU"), out.count("tok/s")) == (1, 0), "in the heading"


def test_a_column_that_says_the_same_in_every_row_is_one_line_under_the_table(tmp_path, command):
    runs = [made_run(zero=zero, nodes=nodes, dp=2 * nodes) for zero in (0, 1) for nodes in (1, 2)]
    records = [dataclasses.replace(made_record(run), mfu=None, gpu="h100") for run in runs]
    write_results(tmp_path / "r.parquet", records)
    out = command("best", tmp_path / "r.parquet")[1]
    assert ("MFU: not known (all)" in out, out.count("MFU")) == (True, 1)
    markdown = command("best", tmp_path / "r.parquet", "--format", "markdown")[1].splitlines()
    assert markdown[0].startswith("| model | nodes | layout | tokens/s/GPU |")
    assert "MFU" not in markdown[0]
    assert "MFU: not known (all)" in markdown
    assert "| MFU |" in command("best", tmp_path / "r.parquet", "--format", "markdown", "--nodes", "2")[1]


def test_times_of_steps_of_different_batches_are_not_compared_in_silence(tmp_path, command):
    runs = [made_run(grad_accum=4), made_run(grad_accum=8), made_run(nodes=2, dp=4)]
    write_results(tmp_path / "r.parquet", [made_record(run) for run in runs])
    rows = command.json("best", tmp_path / "r.parquet", "--metric", "step_time_median_s")
    assert [len(row["notes"]) for row in rows] == [1, 0]
    assert "steps of 1,024 to 2,048 tokens are not comparable" in rows[0]["notes"][0]
    one = ("--filter", "global_batch_tokens == 2048")
    assert "comparable" not in command("best", tmp_path / "r.parquet", "--metric", "step_time_median_s", *one)[1]
    assert "comparable" not in command("best", tmp_path / "r.parquet")[1]


def terminal(rows, width):
    """The table as lines of a terminal of that width."""
    console = Console(width=width, highlight=False)
    with console.capture() as shown:
        console.print(table(rows, width=width))
    return shown.get().splitlines()


def test_a_narrow_terminal_shows_every_figure_whole(results):
    """The issue's 80 columns: seven lines a cell, with the metric's name and half of the sentence cut off."""
    rows = winners([results])
    lines = terminal(rows, 80)
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if "…" in line]
    assert "tok/s/GPU" in lines[1]
    same = sum(line.endswith("(all)") for line in lines)
    assert len(lines) <= 4 + 2 * len(rows) + 1 + same, "two lines a cell, what the words mean, what all have"
    assert "leads: ahead, but not shown beyond the spread between runs" in lines
    assert any("within one run" in line for line in terminal(rows, 140)), "a wide one has the sentence in the table"


def test_a_note_of_several_cells_is_shown_once(tmp_path):
    runs = [made_run(nodes=nodes, dp=2 * nodes, grad_accum=gas) for nodes in (1, 2) for gas in (4, 8)]
    write_results(tmp_path / "r.parquet", [made_record(run, notes=["the host was busy"]) for run in runs])
    text = " ".join(terminal(winners([tmp_path / "r.parquet"]), 80))
    assert text.count("the host was busy") == 1
    assert "on 1, 2 nodes: the host was busy" in text


def test_work_of_several_kinds_in_a_cell_is_noted_and_gives_no_lead(tmp_path, command):
    runs = [made_run(sequence_length=length) for length in (128, 1024)]
    write_results(tmp_path / "r.parquet", [made_record(run) for run in runs])
    (row,) = command.json("best", tmp_path / "r.parquet")
    assert (row["verdict"], row["margin"]) == ("alone", None)
    (note,) = row["notes"]
    assert "runs of another sequence length or global batch were measured here too" in note
    wanted = ("--filter", note.split("'")[1])
    (row,) = command.json("best", tmp_path / "r.parquet", *wanted)
    assert not row["notes"]


def test_the_mfu_that_a_source_states_is_marked_and_in_the_json(tmp_path, command):
    record = dataclasses.replace(made_record(made_run()), mfu=None, reported_mfu=0.371, gpu="h100")
    write_results(tmp_path / "r.parquet", [record])
    out = command("best", tmp_path / "r.parquet")[1]
    assert "37.1%*" in out
    assert "*: the MFU that the source states" in out
    (row,) = command.json("best", tmp_path / "r.parquet")
    assert (row["mfu"], row["reported_mfu"]) == (None, 0.371)


@pytest.mark.parametrize(("ends", "words"), [
    ((Outcome.OOM_CUDA, Outcome.OOM_CUDA, Outcome.HANG), "no run succeeded: 2 oom_cuda, 1 hang"),
    ((Outcome.CANCELLED,), "no run was measured: 1 cancelled (`sweep resume` of its sweep measures the rest)"),
])  # fmt: skip
def test_where_no_run_is_ok_the_error_is_how_they_ended(tmp_path, command, ends, words):
    records = [made_record(made_run(grad_accum=2**at), outcome=outcome) for at, outcome in enumerate(ends)]
    write_results(tmp_path / "r.parquet", records)
    assert words in command.refused("best", tmp_path / "r.parquet")


def test_an_unknown_model_gets_the_nearest(results, command):
    assert "measured: 1B on 1, 1B on 2" in command.refused("best", results, "--model", "8b")


def test_every_format_has_what_rates_the_run_and_that_it_was_simulated(results, tmp_path, command):
    """tests/cli/test_export.py has the columns of each."""
    path = marked(results, tmp_path)
    shown = {form: command("best", path, "--format", form)[1] for form in ("json", "csv", "markdown", "flags")}
    assert [form for form, text in shown.items() if "simulated" not in text or "leads by" not in text] == []
    names = {*CONFIGURATION, "mfu", "peak_memory_bytes", "margin", "repeats", "notes", "run_id"}
    assert all(names <= set(row) for row in json.loads(shown["json"]))
    for name in ("recompute", "pp-schedule", "sequence-length", "global-batch-tokens", "dtype"):
        assert f"--{name}=" in shown["flags"]
    assert "; 1 run;" in shown["flags"]


def test_size_never_calls_simulated_runs_measured(results, tmp_path, command):
    words = ("--params", "8B", "--tokens", "1T", "--gpus", "64", "--from")
    _, out, _ = command("size", *words, marked(results, tmp_path))
    assert "simulated in" in out
    assert "measured" not in out
    _, out, _ = command("size", *words, results)
    assert "measured in" in out
    assert "by the curve: no run had 64 GPUs" in out
    document = command.json("size", *words, results)
    rates = {row["nodes"]: row["tokens_per_second_per_gpu"] for row in command.json("best", results)}
    assert {2 * nodes: 2 * nodes * rate for nodes, rate in rates.items()} == pytest.approx(
        {row["gpus"]: row["best_run_tokens_per_second"] for row in document["curve"] if row["run"]}
    )
    for nodes, rate in rates.items():
        _, out, _ = command("size", "--params", "8B", "--tokens", "1T", "--gpus", 2 * nodes, "--from", results)
        assert f"{rate:,.0f} tokens/s/GPU  measured" in out, "where there is a run, its speed and not the curve's"
        assert "1 GPUs" not in out
    assert {row["gpus"] for row in document["curve"] if row["run"]} == {
        run.layout.gpus for run in (made_run(), made_run(nodes=2, dp=4))
    }


def test_status_and_predictions_mark_runs_as_simulated(results, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    simulated = made(tmp_path / "s")
    pilot_wrote(simulated, "p0001", (simulated.runs[0].run_id, 1, Outcome.OK))
    trained = made(tmp_path / "m", GRID.replace("workload: simulated", "workload: transformer"))
    for directory, expected in ((simulated, True), (trained, False)):
        path = directory.directory.path
        assert command.json("status", path)["simulated"] is expected
        assert ("simulated: no model was trained" in command("status", path)[1]) is expected
    (tmp_path / "grid.yaml").write_text(PREDICTABLE)
    for source, expected in ((marked(results, tmp_path), True), (results, False)):
        _, out, err = command("plan", "grid.yaml", "--from", source)
        assert ("simulated: no model was trained" in out) is expected, err
        assert ("measured runs" in out) is not expected
        assert command.json("plan", "grid.yaml", "--from", source)["forecast"]["simulated"] is expected


def test_a_prediction_from_runs_without_a_speed_states_that_it_is_of_physics(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.yaml").write_text(PREDICTABLE)
    for name, changes, expected in (("failed", {"outcome": Outcome.OOM_CUDA}, True), ("ok", {}, False)):
        write_results(tmp_path / f"{name}.parquet", [made_record(made_run(), **changes)])
        code, _, err = command("plan", "grid.yaml", "--from", f"{name}.parquet")
        assert code == 0, err
        assert (f"no run of {name}.parquet has a speed" in err) is expected


def test_a_plan_predicts_the_best_of_each_cell_and_draws_it(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.yaml").write_text(PREDICTABLE)
    planned = command.json("plan", "grid.yaml", "--heatmap", "p.svg")
    best = planned["cells"][-1]["predicted_best"]
    (drawn,) = (cell for cell in planned["heatmap"]["cells"] if cell["nodes"] == planned["cells"][-1]["nodes"])
    assert (drawn["run_id"], drawn["ties"]) == (best["run_id"], [])
    assert (drawn["low"], drawn["high"]) == (pytest.approx(best["low"]), pytest.approx(best["high"]))
    shown = command("plan", "grid.yaml")[1]
    assert "Predicted best per cell, not measured" in shown
    assert f"{best['low']:,.0f} to {best['high']:,.0f}" in shown
    out = command.shown("plan", "grid.yaml", "--heatmap", "p.svg")
    assert out.splitlines()[-1] == "p.svg"
    assert "predicted" in (tmp_path / "p.svg").read_text()
    assert "has no effect with --show" in command("plan", "grid.yaml", "--heatmap", "p.svg", "--show", "runs")[2]


def test_cancel_of_a_finished_sweep_changes_nothing(tmp_path, command):
    sweep = measured(tmp_path / "s")
    before = sorted(sweep.directory.journals())
    code, _, err = command("cancel", tmp_path / "s")
    assert (code, "nothing to cancel: every run of the sweep has ended" in err) == (0, True)
    assert sorted(sweep.directory.journals()) == before
    assert command.json("status", tmp_path / "s")["cancelled"] is False
