"""`sweep heatmap` and `sweep collect` by the command line."""

import pytest

from analysis.metrics import number
from sweep.contract import Measurement, Run
from sweep.outcomes import Outcome
from sweep.records.collect import write_results
from tests.support.made_plans import rows_of
from tests.support.made_records import made_record, made_run, made_sweep, record_event, write_journal


@pytest.fixture
def sweep(tmp_path):
    sweep = made_sweep(tmp_path / "s")
    simulated = [Measurement(step_times_s=[0.1] * 3, simulated=True)] * 2
    made = [
        made_record(made_run(zero=0)),
        made_record(made_run(zero=3), times=(0.05,) * 3),
        made_record(made_run(model="3B"), outcome=Outcome.OOM_CUDA),
        made_record(made_run(model="8B"), measurements=simulated),
    ]
    write_journal(sweep, "p", map(record_event, made))
    return sweep


def test_a_sweep_is_collected_and_drawn_and_json_is_a_row_per_cell(sweep, tmp_path, command):
    assert command.shown("heatmap", sweep.path).strip() == str(sweep.path / "figures" / "heatmap.png")
    assert (sweep.path / "figures" / "heatmap.png").read_bytes().startswith(b"\x89PNG")
    document = command.json("heatmap", sweep.path, "--out", tmp_path / "x.svg")
    rows = {row["model"]: row for row in document["cells"]}
    assert rows["1B"]["zero"] == 3
    assert rows["1B"]["tokens_per_second_per_gpu"] == pytest.approx(8 * 128 / 0.05 / 2)
    assert rows["1B"]["run_id"] == made_run(zero=3).run_id
    assert (rows["3B"]["status"], rows["3B"]["value"]) == ("failed", None)
    assert rows["8B"]["simulated"] is True


LARGER = """
models: [1B]
nodes: [1, 2]
sequence_length: 4096
global_batch: 1Mi
tp: [1, 2]
zero: [0, 1]
micro_batch_size: [1, 2]
site: {gpu: h100, gpus_per_node: 8}
"""


def of_one_node(folder, times):
    """Results of a grid's runs on one node, so many times faster than the step-time model predicts."""
    (folder / "grid.yaml").write_text(LARGER)
    rows = rows_of(LARGER)
    records = []
    for row in (row for row in rows if row["status"] == "run" and row["nodes"] == 1):
        run = Run.from_json(row["run_json"])
        records.append(made_record(run, times=[row["predicted_step_s"] / times] * 10, gpu="h100"))
    write_results(folder / "small.parquet", records)
    return {record.run_id: record.tokens_per_second_per_gpu for record in records}


def test_a_grids_other_cells_are_predicted_from_results_and_marked(tmp_path, command):
    """By what the measured cell says of the speed: half as fast again there, about half as fast again here."""
    predicted = {}
    for times in (1, 1.5):
        measured = of_one_node(tmp_path, times)
        words = (tmp_path / "grid.yaml", "--from", tmp_path / "small.parquet", "--heatmap", tmp_path / "h.svg")
        cells = {cell["nodes"]: cell for cell in command.json("plan", *words)["heatmap"]["cells"]}
        assert cells[1]["tokens_per_second_per_gpu"] == pytest.approx(max(measured.values()))
        assert [cells[nodes]["predicted"] for nodes in (1, 2)] == [False, True]
        predicted[times] = cells[2]["tokens_per_second_per_gpu"]
    assert predicted[1.5] == pytest.approx(1.5 * predicted[1], rel=0.1)
    picture = (tmp_path / "h.svg").read_text()
    assert "(some predicted)" in picture
    assert picture.count("pred.") == 2, "one cell, and the note that explains it"
    low, high = (cells[2][end] for end in ("low", "high"))
    assert 1.1 < high / cells[2]["value"] < 2
    assert 1.1 < cells[2]["value"] / low < 2
    assert f"{number(low)} to" in picture
    assert "the interval of 9 in 10 predictions" in picture


def test_results_of_another_trainer_are_pointed_out(tmp_path, command):
    of_one_node(tmp_path, 1)
    (tmp_path / "grid.yaml").write_text(LARGER + "workload: megatron\n")
    code, _, err = command("plan", tmp_path / "grid.yaml", "--from", tmp_path / "small.parquet")
    assert (code, "the results are of transformer: what megatron adds to a step is not learned" in err) == (0, True)
