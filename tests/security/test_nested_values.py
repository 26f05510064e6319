"""Values nested a hundred thousand deep, in every file that a command reads: one clear error, and no traceback."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.command_line import Command
from tests.support.made_sweeps import GRID, measured

DEEP = "[" * 100_000 + "]" * 100_000
NESTED = f'{{"a": {DEEP}}}'


def text(name: str, content: str = NESTED) -> Callable[[Path], Path]:
    def write(root: Path) -> Path:
        (root / name).write_text(content)
        return root / name

    return write


def column(table: str, name: str) -> Callable[[Path], Path]:
    """A column of a table of the sweep with nested values in each row."""

    def write(root: Path) -> Path:
        rows = pq.read_table(root / table)
        values = pa.array([NESTED] * len(rows))
        path = root / ("s/plan.parquet" if "plan" in table else "results.parquet")
        pq.write_table(rows.set_column(rows.column_names.index(name), name, values), path)
        return path

    return write


CASES = {
    "a grid": (text("nested.yaml"), ["plan", "FILE"]),
    "a grid, as YAML's own lists": (text("nested.yaml", "- " * 100_000), ["launch", "FILE"]),
    "an override": (lambda root: Path("-o tp=[["), ["plan", "grid.yaml", "-o", f"tp={DEEP}"]),
    "a site": (text("site.yaml"), ["plan", "grid.yaml", "--site", "FILE"]),
    "measured rates": (
        lambda root: (text("h.yaml", "{gpu: h100, gpus_per_node: 8}\n")(root), text("h.measured.yaml")(root))[1],
        ["plan", "grid.yaml", "--site", "h.yaml"],
    ),
    "a model": (text("config.json"), ["plan", "grid.yaml", "-o", "models={big: FILE}"]),
    "a map": (text("map.yaml"), ["import", "table.csv", "--map", "FILE"]),
    "the origin, where a sweep is continued": (text("s/provenance.json"), ["status", "s"]),
    "the origin, in a report": (text("s/provenance.json"), ["report", "s"]),
    "the origin, in an archive": (text("s/provenance.json"), ["archive", "s"]),
    "the runs of a plan": (column("s/plan.parquet", "run_json"), ["status", "s"]),
    "parameters, in a list": (column("s/results.parquet", "params_json"), ["best", "FILE"]),
    "a shape, to predict from": (column("s/results.parquet", "shape_json"), ["plan", "grid.yaml", "--from", "FILE"]),
    "versions": (column("s/results.parquet", "versions_json"), ["report", "FILE", "--no-figures"]),
    "further facts": (column("s/results.parquet", "extra_json"), ["explain", "FILE", "n1-dp2"]),
    "what was compared": (column("s/results.parquet", "params_json"), ["compare", "FILE", "s/results.parquet"]),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.yaml").write_text(GRID)
    (tmp_path / "table.csv").write_text("model,sequence_length,nodes,tokens_per_second_per_gpu\n1B,64,1,100\n")
    measured(tmp_path / "s")
    assert command("collect", "s")[0] == 0
    return tmp_path


@pytest.mark.parametrize("case", CASES)
def test_one_clear_error(here: Path, command: Command, case: str) -> None:
    write, words = CASES[case]
    file = write(here)
    err = command.refused(*(word.replace("FILE", file.name) for word in words), within=here)
    assert err.count("error: ") == len(err.splitlines()) == 1, err[:2000]
    assert file.name in err
    assert len(err) < 1000


def test_a_line_of_a_journal_is_reported_with_its_place_and_the_others_are_read(here: Path, command: Command) -> None:
    journal = here / "s" / "journal" / "pilot-p0001.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    at = next(at for at, line in enumerate(lines) if '"params_json"' in line)
    values = json.loads(lines[at])
    values["record"]["params_json"] = NESTED
    lines[at] = json.dumps(values) + "\n"
    journal.write_text("".join(lines))
    shutil.rmtree(here / "s" / "figures", ignore_errors=True)
    for derived in ("results.parquet", "snapshot.msgpack"):
        (here / "s" / derived).unlink(missing_ok=True)
    code, out, err = command("collect", "s", "--json")
    assert (code, json.loads(out)["attempts"]) == (0, 3)
    assert f"pilot-p0001.jsonl: the line at byte {len(''.join(lines[:at]))} is skipped: params_json" in err
