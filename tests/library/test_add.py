"""A grid that is added to a sweep: its runs become a further plan, and existing plans do not change."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import analysis
from sweep.errors import SweepError
from sweep.inputs.load import load_inputs, parse_grid
from sweep.library.launch import Launched, launch
from sweep.outcomes import Outcome
from sweep.store import extend, lease
from sweep.store.sweep import Sweep, open_sweep
from tests.support.command_line import Command
from tests.support.made_sweeps import GRID, made, pilot_wrote, tree

WIDER = GRID.replace("nodes: [1, 2]", "nodes: [2, 4]").replace("size: [1, 2]", "size: [2, 4]")


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """A sweep of one and two nodes that a launcher holds; its first run is ok. Also a grid of two and four."""
    monkeypatch.chdir(tmp_path)
    Path("grid.yaml").write_text(GRID)
    Path("wider.yaml").write_text(WIDER)
    sweep = made(tmp_path / "s")
    pilot_wrote(sweep, "p0001", (sweep.runs[0].run_id, 1, Outcome.OK))
    lease.take(sweep.directory)
    return sweep


def add(grid: str, *overrides: str, site: str | None = None, directory: str = "s") -> Launched:
    """What launching the grid with --add comes to; this process holds the sweep, so that it only adds."""
    return launch(*load_inputs(Path(grid), overrides, site), directory=directory, add=True)


def ids(sweep: Sweep) -> list[str]:
    return [planned.run_id for planned in sweep.runs]


def test_new_runs_follow_the_old_ones(sweep: Sweep) -> None:
    before = tree(sweep.directory.path)
    launched = add("wider.yaml")
    assert launched.holder is not None
    assert launched.added is not None
    assert (launched.runs, launched.added.runs, launched.added.planned_before) == (7, 3, 1)
    now = open_sweep(sweep.directory.path)
    assert ids(now)[: len(sweep.runs)] == ids(sweep)
    assert [planned.nodes for planned in now.runs[len(sweep.runs) :]] == [2, 4, 4]
    assert len(set(ids(now))) == len(now.runs) == 7
    assert [path.name for path in now.plans] == ["plan.parquet", "plan-0002.parquet"]
    assert sweep.planned(ids(now)[-1]) is None, "a launcher that runs does not know it yet"
    sweep.refresh_plans()
    assert sweep.planned(ids(now)[-1]) == now.runs[-1]
    retained = [entry for entry in before if entry[0] != "journal"]
    assert set(retained) <= set(tree(sweep.directory.path))


def test_every_reader_has_all_plans(sweep: Sweep, command: Command) -> None:
    add("wider.yaml")
    document = command.json("status", "s")
    assert (document["runs"], document["counts"]) == (7, {"ok": 1, "waiting": 6})
    assert {(cell["nodes"], cell["runs"]) for cell in document["cells"]} == {(1, 2), (2, 3), (4, 2)}
    command("collect", "s")
    plan = analysis.load_plan(sweep.directory.path)
    assert plan is not None
    assert plan["run_id"].dropna().tolist() == ids(open_sweep(sweep.directory.path))
    command("report", "s", "--no-figures", "--out", "report.html")
    assert "# grid-0002.yaml, added by" in Path("report.html").read_text()
    cells = {row["nodes"]: row["status"] for row in command.json("heatmap", "s")["cells"]}
    assert cells == {1: "best", 2: "not_run", 4: "not_run"}


def test_a_rejected_candidate_is_listed_once_and_a_run_stays_a_run(sweep: Sweep, command: Command) -> None:
    stricter = GRID.replace("size: [1, 2]", "size: [1, 2, 4]").replace("[1, 2]\nseq", "[1, 2, 4]\nseq")
    Path("first.yaml").write_text(stricter + "constraints: [micro_batch_size > 1]\n")
    wider = stricter.replace("size: [1, 2, 4]", "size: [1, 2, 4, 8, 16]")
    Path("second.yaml").write_text(wider + "constraints: [micro_batch_size > 2, micro_batch_size != 8]\n")
    add("first.yaml")
    add("second.yaml")
    tables = [pq.read_table(path) for path in sweep.directory.plans()]
    assert len(tables) == 3
    rows = [row for table in tables for row in table.to_pylist()]
    keys = [(row["nodes"], row["micro_batch_size"], row["status"]) for row in rows]
    assert len(set(keys)) == len(keys)
    # micro_batch_size 1 on 1 and 2 nodes was a run before it was ruled out: it stays one, and on 4 it is rejected.
    rejected = {(nodes, size) for nodes, size, status in keys if status == "rejected"}
    assert rejected == {(4, 1), (1, 8), (2, 8), (4, 8), (4, 16)}
    positions = [row["position"] for row in rows if row["status"] == "run"]
    assert positions == list(range(len(positions)))


def test_the_same_again_adds_nothing(sweep: Sweep) -> None:
    add("wider.yaml")
    before = tree(sweep.directory.path)
    for grid in ("wider.yaml", "grid.yaml"):
        added = add(grid).added
        assert added is not None
        assert added.empty
    assert tree(sweep.directory.path) == before


def test_launching_either_grid_resumes_and_a_third_is_to_be_added(sweep: Sweep) -> None:
    add("wider.yaml")
    for grid in ("grid.yaml", "wider.yaml"):
        with pytest.raises(SweepError, match="another launcher holds this sweep"):
            launch(parse_grid(Path(grid).read_text(), grid), directory="s", executor="local")
    with pytest.raises(SweepError, match=r"the sweep of another grid \(`sweep launch GRID --dir \S+ --add`"):
        launch(parse_grid(GRID, "g", ["nodes=[3]"]), directory="s", executor="local")


def test_settings_of_the_last_grid_are_in_force(sweep: Sweep, command: Command) -> None:
    words = ("launch", "grid.yaml", "--dir", "s", "--add", "-o", "budget.runs=3", "-o", "name=other")
    before = tree(sweep.directory.path)
    code, out, err = command(*words, "--dry-run", "--json")
    added = json.loads(out)
    assert (code, added["runs"], added["settings"], err) == (0, 0, {"budget": [{}, {"runs": 3}]}, "")
    assert command(*words, "--dry-run") == (0, "", (
        "0 new runs; 4 of the grid's runs were planned before\n"
        "budget: runs 3 from now on, none until now\nnothing was written\n"
    ))  # fmt: skip
    assert tree(sweep.directory.path) == before
    code, out, err = command(*words, "--json")
    document = json.loads(out)
    del added["directory"]
    assert (code, document["added"], document["launcher"] in err) == (0, added, True)
    now = open_sweep(sweep.directory.path)
    assert (now.grid.name, now.grid.budget.runs, ids(now)) == ("good", 3, ids(sweep))
    counts = command.json("status", "s")["counts"]
    assert counts == {"ok": 1, "waiting": 2, "not_run_budget": 1}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["wider.yaml", "sequence_length=128"], ["sequence_length is 128", "is 64", "wider.yaml"]),
        (["wider.yaml", "workload=transformer", "seed=1"], ["workload is transformer", "seed is 1"]),
        (["wider.yaml", "global_batch=8192"], ["global_batch is 8192"]),
        (["wider.yaml", "site.gpus_per_node=4"], ["started with another site", "gpus_per_node differs", "site.yaml"]),
        (["shape.yaml"], ["tiny-1M has another shape"]),
        (["wider.yaml", "constraints=[tp > 1]"], ["no candidate of this grid can work"]),
        (["wider.yaml", "nodes=[8]"], ["the widest run has 16 ranks"]),
    ],
)
def test_bad_input_changes_nothing(sweep: Sweep, tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    shape = "{num_layers: 2, hidden_size: 64, num_heads: 4, intermediate_size: 128, vocab_size: 512}"
    Path("shape.yaml").write_text(WIDER.replace("[tiny-1M]", f"{{tiny-1M: {shape}}}"))
    before = tree(tmp_path)
    with pytest.raises(SweepError) as caught:
        add(*arguments)
    for word in words:
        assert word in str(caught.value)
    assert tree(tmp_path) == before


def test_cut_off_before_the_plan_the_sweep_is_as_it_was(
    sweep: Sweep, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = extend.write_once

    def cut_off(path: Path, data: bytes | str) -> None:
        if path.suffix == ".parquet":
            raise KeyboardInterrupt
        real(path, data)

    monkeypatch.setattr(extend, "write_once", cut_off)
    with pytest.raises(KeyboardInterrupt):
        add("wider.yaml")
    assert (sweep.directory.path / "grid-0002.yaml").is_file()
    assert open_sweep(sweep.directory.path).runs == sweep.runs
    monkeypatch.setattr(extend, "write_once", real)
    add("grid.yaml", "iterations=9")  # another grid takes the next number
    add("wider.yaml")  # the same command continues where it was interrupted
    now = open_sweep(sweep.directory.path)
    assert [path.name for path in now.plans] == ["plan.parquet", "plan-0002.parquet", "plan-0003.parquet"]
    assert len(set(ids(now))) == len(now.runs) == 4 + 4 + 3
    assert now.plans[1].with_name("grid-0002.yaml").read_text() == parse_grid(WIDER, "w").to_yaml()


def test_a_run_that_two_extensions_added_counts_once(sweep: Sweep, command: Command) -> None:
    add("wider.yaml")
    plan, grid = sweep.directory.extension(3)[1], sweep.directory.extension(3)[0]
    plan.write_bytes(sweep.directory.extension(2)[1].read_bytes())
    grid.write_bytes(sweep.directory.extension(2)[0].read_bytes())
    now = open_sweep(sweep.directory.path)
    assert len(now.runs) == len(set(ids(now))) == 7
    loaded = analysis.load_plan(sweep.directory.path)
    assert loaded is not None
    assert loaded["run_id"].dropna().is_unique


def test_a_torn_plan_is_reported(sweep: Sweep, command: Command) -> None:
    add("wider.yaml")
    sweep.directory.extension(2)[1].write_bytes(b"PAR1 torn")
    assert "plan-0002.parquet" in command("status", "s")[2]
    with pytest.raises(SweepError, match=r"plan-0002\.parquet"):
        add("grid.yaml")
