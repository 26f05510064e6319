"""A package of somebody else, in a folder of its own: registered by entry points, and run in a sweep."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet
import pytest

from tests.support import driving

PACKAGE = {
    "theirs/__init__.py": "",
    "theirs/trainer.py": """
import json
import time
from pathlib import Path

from bench_workloads.trainers.adapter import SHARED_CHOICES, Adapter, Launch, TrainerParameters
from bench_workloads.trainers.driver.driver import drive
from bench_workloads.trainers.driver.reading import NUMBER, PatternReader
from sweep.contract import Workload


def main(run, progress):
    time.sleep(2 * run.place.rank)  # rank 0's trainer has ended by then, as on a loaded machine
    drive(ADAPTER, run, progress)


def configure(run, directory, steps):
    layout = {"dp": run.layout.dp, "batch": run.layout.micro_batch_size, "accumulation": run.layout.grad_accum}
    text = json.dumps({**layout, "steps": steps})
    return Launch(program=("-m", "theirs.train", str(Path(directory) / "config.json")), files={"config.json": text})


def reader(run):
    return PatternReader(r"^iter (\\d+) ", {"loss": rf"loss ({NUMBER})"}, {"dp": (r"^data parallel: (\\d+)", int)})


WORKLOAD = Workload(
    name="their-trainer",
    main="theirs.trainer:main",
    axes=frozenset({"dp", "micro_batch_size", "grad_accum"}),
    params=TrainerParameters.defaults(),
    choices=dict(SHARED_CHOICES),
    takes_listener=True,
    same_start=False,
)
ADAPTER = Adapter(workload=WORKLOAD, configure=configure, reader=reader)
""",
    "theirs/train.py": """
import json
import os
import sys
import time

config = json.load(open(sys.argv[1]))
print("data parallel:", config["dp"], flush=True)
for number in range(1, config["steps"] + 1):
    time.sleep(0.02 * config["batch"])
    if os.environ["RANK"] == "0":
        print(f"iter {number} | loss {3 / number:.3f}", flush=True)
""",
    "theirs/strategy.py": """
import numpy as np

from sweep.search.strategies import Pick


class LastFirst:
    def pick(self, known, free):
        rows = np.flatnonzero(free)
        return Pick(int(rows[-1]), "the last of the plan") if len(rows) else None

    def open(self, known, free):
        return free
""",
    "theirs-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n",
    "theirs-1.0.dist-info/entry_points.txt": """
[sweep.workloads]
their-trainer = theirs.trainer:WORKLOAD

[sweep.trainers]
their-trainer = theirs.trainer:ADAPTER

[sweep.strategies]
their-strategy = theirs.strategy:LastFirst
""",
}
GRID = """
workload: their-trainer
strategy: their-strategy
models: [tiny-1M]
nodes: 1
sequence_length: 64
global_batch: 1024
micro_batch_size: [1, 2, 4]
iterations: 3
stop_slow: "off"
site: {gpu: cpu, gpus_per_node: 2}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The package as pip would install it, in a folder that only PYTHONPATH names."""
    for name, text in PACKAGE.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip("\n"))
    return tmp_path / "site"


def on_path(folder: Path) -> Mapping[str, str]:
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))}


def test_it_runs_in_a_sweep_to_records_and_its_best_is_exported_in_its_own_format(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text(GRID)
    words = ("launch", "grid.yaml", "--dir", "s", "--executor", "local", "--yes", "--json")
    done = driving.succeeds(*words, cwd=tmp_path, env=on_path(folder))
    assert json.loads(done.stdout)["counts"] == {"ok": 3}
    records = driving.records_of(tmp_path / "s")
    assert [record["workload"] for record in records] == ["their-trainer"] * 3
    assert all(len(record["step_times_s"]) == 3 for record in records)
    planned = pyarrow.parquet.read_table(tmp_path / "s" / "plan.parquet")["run_id"].drop_null().to_pylist()
    assert [record["run_id"] for record in records] == planned[::-1], "its strategy takes the last of the plan first"
    done = driving.succeeds("best", "s", "--format", "their-trainer", cwd=tmp_path, env=on_path(folder))
    assert '"dp": 2' in done.stdout
