"""Every kind of wrong input gives one clear message, exit 2, and changes nothing on disk."""

from pathlib import Path

import pytest

from tests.support.made_sweeps import made, tree

GRID = """\
name: good
workload: simulated
models: [tiny-1M]
nodes: [1]
sequence_length: 64
global_batch: 1024
dtype: [fp32]
site: {gpu: cpu, gpus_per_node: 2}
"""


GRIDS = {  # of each kind of check one: tests/inputs and tests/planning have all
    "unknown key": (GRID + "micro_batch_sise: [1]\n", ["micro_batch_size", ":9"]),
    "not YAML": ("name: [unclosed\nnodes: }", [":"]),
    "unknown workload": (GRID.replace("simulated", "simulator"), ["simulator", ":2"]),
    "no runnable candidate": (GRID + "tp: [2]\nconstraints: ['tp == 1']\n", ["no candidate"]),
    "workload without the axis value": (GRID + "recompute: [sometimes]\n", ["sometimes"]),
}


@pytest.mark.parametrize("kind", GRIDS)
@pytest.mark.parametrize("name", ["plan", "launch"])
def test_a_bad_grid(tmp_path, monkeypatch, command, kind, name):
    text, words = GRIDS[kind]
    monkeypatch.chdir(tmp_path)
    Path("grid.yaml").write_text(text)
    before = tree(tmp_path)
    more = ["--executor", "local", "--yes"] if name == "launch" else []
    code, out, err = command(name, "grid.yaml", *more)
    assert code == 2, err
    assert out == "" or (name, kind) == ("plan", "no runnable candidate"), "plan shows what it rejected"
    assert "Traceback" not in err
    for word in words:
        assert word in err, err
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan", "grid.yaml", "--site", "nowhere"], ["nowhere"]),
        (["plan", "grid.yaml", "--site", "site.yaml"], ["partitoin", "partition"]),
        (
            ["launch", "grid.yaml", "--executor", "local", "-o", "nodes=[64]", "-o", "global_batch=8192", "--yes"],
            ["ranks"],
        ),
        (["launch", "grid.yaml", "--executor", "local", "-o", "max_run_time=9h", "--yes"], ["pilot_time"]),
        (["launch", "grid.yaml", "--executor", "local", "--dir", "full", "--yes"], ["not a sweep directory"]),
        (
            ["launch", "grid.yaml", "--executor", "slurm", "-o", "nodes=[3,4]", "-o", "site.segment=3", "--yes"],
            ["4 nodes is not made of whole segments of 3", "site.segment"],
        ),
        (["resume"], ["no sweep under"]),
        (["best", "t.csv"], ["t.csv: a table of its own format, not results (`sweep import t.csv` converts it)"]),
        (["status", "a", "b"], ["error: unexpected: 'b'"]),
        (["launch"], ["error: GRID: this argument is missing"]),
    ],
)
def test_bad_arguments(tmp_path, monkeypatch, command, arguments, words):
    monkeypatch.chdir(tmp_path)
    Path("grid.yaml").write_text(GRID)
    Path("site.yaml").write_text("gpu: cpu\ngpus_per_node: 2\npartitoin: main\n")
    Path("full").mkdir()
    Path("full/mine.txt").write_text("mine")
    Path("t.csv").write_text("model,nodes,tokens_per_second_per_gpu\n1B,1,100\n")
    err = command.refused(*arguments, within=tmp_path)
    for word in words:
        assert word in err, err


def test_another_site_is_refused(tmp_path, monkeypatch, command):
    """Its change would have no effect: the user gets an error and a remedy."""
    monkeypatch.chdir(tmp_path)
    Path("grid.yaml").write_text(GRID)
    Path("site.yaml").write_text("{gpu: cpu, gpus_per_node: 2, account: right}")
    made(tmp_path / "s", GRID)
    for stated in (("-o", "site.account=right"), ("--site", "site.yaml")):
        err = command.refused("launch", "grid.yaml", "--dir", "s", "--executor", "local", *stated, within=tmp_path)
        assert "started with another site: account differs" in " ".join(err.split())
        assert "another grid" not in err
