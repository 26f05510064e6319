"""`sweep explain` of a run that is ok: its figures, its rank in its cell, predicted against measured by part."""

import re
import shutil
from pathlib import Path

import pytest

from sweep.cli.explain_measured import clearly_slower, gap_lines
from sweep.outcomes import Outcome
from sweep.state.events import NodeBad
from sweep.store.journal import Journal
from sweep.store.sweep import Sweep
from tests.support import published
from tests.support.command_line import Command
from tests.support.made_records import made_record, record_event
from tests.support.made_sweeps import GRID, made, measured, pilot_wrote
from tests.support.paths import REPOSITORY

H100 = """\
name: h100
workload: transformer
models: [1B]
nodes: [1]
sequence_length: 4096
global_batch: 1Mi
iterations: 3
tp: [1, 2]
micro_batch_size: [1, 2]
site: {gpu: h100, gpus_per_node: 8}
"""


def test_the_step_is_explained_by_part(tmp_path: Path, command: Command) -> None:
    sweep = measured(tmp_path / "s", H100)
    run = sweep.runs[0]
    (document,) = command.json("explain", tmp_path / "s", run.run_id)
    found = document["measured"]
    parts = found["predicted"]["parts_s"]
    assert sum(parts.values()) == pytest.approx(found["predicted"]["step_s"], rel=0.01)
    assert len([seconds for seconds in parts.values() if seconds]) > 2
    assert 1 <= found["rank_in_cell"] <= found["ranked_in_cell"] == len(sweep.runs)
    out = command.shown("explain", tmp_path / "s", run.run_id)
    assert f"rank:     {found['rank_in_cell']} of {len(sweep.runs)} measured configurations of 1B on 1 node" in out
    assert "measured, " in next(line for line in out.splitlines() if line.startswith("step:"))
    assert "predicted: " in next(line for line in out.splitlines() if line.startswith("parts:"))
    assert not re.search("in this run|median:", out), "without repeats there is one speed"


def test_a_run_without_a_prediction_is_shown_without(tmp_path: Path, command: Command) -> None:
    sweep = measured(tmp_path / "s", GRID)
    out = command.shown("explain", tmp_path / "s", sweep.runs[0].run_id)
    assert "tokens/s/GPU" in out
    assert "no prediction: the hardware's speed is not known" in out
    assert "parts:" not in out


def test_the_gap_of_each_best_configuration_with_three_causes(tmp_path: Path, command: Command) -> None:
    sweep = measured(tmp_path / "s", H100)
    (found,) = command.json("explain", tmp_path / "s", "--gap")
    assert found["run_id"] in {run.run_id for run in sweep.runs}
    shares = [loss["share"] for loss in found["losses"]]
    assert shares == sorted(shares, reverse=True)
    assert found["ideal_step_s"] == pytest.approx(found["mfu"] * found["step_s"])
    out = command.shown("explain", tmp_path / "s", "--gap")
    assert re.findall(r"^  (\d)\. ", out, re.MULTILINE) == ["1", "2", "3"]
    assert "model's FLOPs at the dense peak" in out
    assert "`sweep doctor --tier perf` measures this cluster's own" in out
    for run in sweep.runs:
        assert [one["run_id"] for one in command.json("explain", tmp_path / "s", run.run_id, "--gap")] == [
            run.run_id
        ], "also of those that are not the best"


def test_a_loss_that_would_be_shown_as_0_per_cent_is_no_likely_cause():
    loss = {"cause": "unsteady", "evidence": "e", "advice": "a", "measured": True}
    found = {
        "model": "1B", "nodes": 1, "run_id": "r", "step_s": 1.0, "mfu": None, "notes": [], "nodes_found": [],
        **dict.fromkeys(("ideal_step_s", "predicted_step_s", "rates_measured_on")),
    }  # fmt: skip
    small, large = ({**loss, "seconds": share, "share": share} for share in (0.004, 0.006))
    assert any("unsteady" in line for line in gap_lines({**found, "losses": [large]}))
    assert "no cause is known" in "\n".join(gap_lines({**found, "losses": [small]}))


def test_no_gap_is_claimed_of_a_run_that_failed(tmp_path: Path, command: Command) -> None:
    sweep = made(tmp_path / "s", H100)
    pilot_wrote(sweep, "p0001", (sweep.runs[0].run_id, 1, Outcome.OOM_CUDA))
    err = command.refused("explain", tmp_path / "s", sweep.runs[0].run_id, "--gap")
    assert f"no attempt of {sweep.runs[0].run_id} is ok" in err


REPEATED = H100.replace("tp: [1, 2]\nmicro_batch_size: [1, 2]", "tp: [1]\nmicro_batch_size: [1]\nrepeats: 5")


def repeated(path: Path, slow_s: float) -> Sweep:
    """Five runs of one configuration on a node each; that on n1, the first, has its own step time."""
    sweep = made(path, REPEATED)
    sweep.directory.pilot("p0001").mkdir(mode=0o700)
    journal = Journal(sweep.directory.journal("pilot-p0001"))
    for at, planned in enumerate(sweep.runs):
        step_s = slow_s if at == 0 else 1.0 + 0.002 * at
        record = made_record(planned.run(), [step_s] * 3, node_names=[f"n{at + 1}"], gpu="h100")
        journal.append(record_event(record))
    journal.append(NodeBad(time=200.0, pilot="p0001", node="n1", reason="preflight: clocks: 900 MHz, expected 1980"))
    journal.close()
    return sweep


def test_a_repeated_run_is_shown_with_its_own_speed_and_the_median_that_best_shows(
    tmp_path: Path, command: Command
) -> None:
    sweep = repeated(tmp_path / "s", slow_s=1.2)
    (winner,) = command.json("best", tmp_path / "s")
    found = command.json("explain", tmp_path / "s", sweep.runs[0].run_id)[0]["measured"]
    assert found["median_tokens_per_second_per_gpu"] == pytest.approx(winner["tokens_per_second_per_gpu"])
    assert found["tokens_per_second_per_gpu"] < 0.9 * found["median_tokens_per_second_per_gpu"]
    assert (found["measured_runs"], found["rank_in_cell"]) == (5, 1)
    _, out, _ = command("explain", tmp_path / "s", sweep.runs[0].run_id)
    own, median = (next(line for line in out.splitlines() if line.startswith(word)) for word in ("speed:", "median:"))
    assert own.endswith(" in this run")
    assert median.endswith(" tokens/s/GPU of its 5 runs: what `best` and the heatmap show")


def test_a_prediction_beyond_the_measured_step_is_stated(tmp_path: Path, command: Command) -> None:
    sweep = repeated(tmp_path / "s", slow_s=0.001)
    (found,) = command.json("explain", tmp_path / "s", sweep.runs[0].run_id, "--gap")
    assert sum(one["seconds"] for one in found["losses"] if not one["measured"]) > found["step_s"]
    lines = "\n".join(gap_lines(found))
    more = found["predicted_step_s"] / found["step_s"] - 1
    assert re.search(rf"^model: .* sum to .*, {more:.0%} more than the step that was measured", lines, re.MULTILINE)
    slow = {**found, "step_s": 2 * found["predicted_step_s"]}
    assert "model:" not in "\n".join(gap_lines(slow))


def test_slower_nodes_are_a_cause_with_what_checks_found_on_them(tmp_path: Path, command: Command) -> None:
    sweep = repeated(tmp_path / "s", slow_s=1.2)
    (found,) = command.json("explain", tmp_path / "s", sweep.runs[0].run_id, "--gap")
    (loss,) = (loss for loss in found["losses"] if loss["cause"] == "slower nodes")
    assert loss["seconds"] == pytest.approx(1.2 - 1.005)
    assert "4 runs of it on other nodes take 1,005.0 ms (median); n1 is excluded: preflight: clocks" in loss["evidence"]
    _, out, _ = command("explain", tmp_path / "s", sweep.runs[0].run_id, "--gap")
    assert "node:       n1 is excluded: preflight: clocks: 900 MHz" in out
    (fine,) = command.json("explain", tmp_path / "s", sweep.runs[3].run_id, "--gap")
    assert fine["nodes_found"] == []
    assert "slower nodes" not in [loss["cause"] for loss in fine["losses"]]


def test_a_run_is_clearly_slower_only_beyond_the_spread_of_the_others() -> None:
    assert clearly_slower(1.05, [1.0, 1.001, 0.999])
    assert not clearly_slower(1.05, [1.0, 1.06, 0.94])
    assert not clearly_slower(1.05, [1.0])
    assert not clearly_slower(0.9, [1.0, 1.0])


def test_the_gap_of_a_results_file_is_that_of_the_sweep_it_came_from(tmp_path: Path, command: Command) -> None:
    """On nominal rates, without a site: the H100's data sheet is what this sweep's site has."""
    sweep = measured(tmp_path / "s", H100)
    (of_sweep,) = command.json("explain", tmp_path / "s", "--gap")
    shutil.copy(tmp_path / "s" / "results.parquet", tmp_path / "r.parquet")
    (found,) = command.json("explain", tmp_path / "r.parquet", "--gap")
    assert found["predicted_step_s"] is not None
    assert found == of_sweep
    _, out, _ = command("explain", tmp_path / "r.parquet", sweep.runs[1].run_id, "--gap")
    assert sweep.runs[1].run_id in out
    err = command.refused("explain", tmp_path / "r.parquet", "no-such-run", "--gap")
    assert "no run has 'no-such-run' in its run_id" in err


def test_the_gaps_of_a_published_table_name_causes(tmp_path: Path, command: Command) -> None:
    table = published.table("playbook_runs.csv")
    mapping = REPOSITORY / "examples" / "import" / "playbook.yaml"
    assert command("import", table, "--map", mapping, "--out", tmp_path / "r.parquet")[0] == 0
    found = command.json("explain", tmp_path / "r.parquet", "--gap")
    assert len(found) == 14, "a cell each"
    for one in found:
        assert one["losses"], one["run_id"]
        assert one["predicted_step_s"] > one["ideal_step_s"] > 0
