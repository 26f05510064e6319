"""Top configurations are re-measured at the end, by another pilot, and the answer says what that shows."""

import json
from pathlib import Path

from tests.support import driving
from tests.support.made_sweeps import GRID


def test_the_best_two_of_each_cell_are_measured_in_another_start(tmp_path: Path) -> None:
    grid = GRID + "strategy: prune\nremeasure: 0.5\nbudget: {runs: 8}\nparams: {step_s: [0.05, 0.25]}\n"
    directory = tmp_path / "s"
    done = driving.launched(tmp_path, grid, "--json")
    shown = "8 runs of 2 cells, and beyond the budget the best two of each again"
    assert json.loads(done.stdout)["counts"] == {"ok": 12}, shown
    assert "12 runs (4 repeats): 12 ok" in done.stderr
    records = driving.records_of(directory)
    again = [record for record in records if record["repeat"] == 1]
    for nodes in (1, 2):
        first = sorted(
            (r for r in records if r["nodes"] == nodes and r["repeat"] == 0),
            key=lambda r: -r["tokens_per_second_per_gpu"],
        )
        asked = {(r["micro_batch_size"], r["params_json"]) for r in again if r["nodes"] == nodes}
        assert asked == {(r["micro_batch_size"], r["params_json"]) for r in first[:2]}
    pilots = {repeat: {r["pilot"] for r in records if r["repeat"] == repeat} for repeat in (0, 1)}
    assert not pilots[0] & pilots[1], "another start"
    best = json.loads(driving.run("best", directory, "--json").stdout)
    assert [row["repeats"] for row in best] == [2, 2]
    assert all("spread between runs is unknown" not in row["confidence"] for row in best)
    resumed = driving.run("resume", directory, "--json")
    assert json.loads(resumed.stdout)["counts"] == {"ok": 12}, "and not again"
