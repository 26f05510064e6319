"""Sweeps and tables of a stranger, with hostile values everywhere, through every command that reads them."""

import json
import os
import random
import re
import unicodedata
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from analysis.derive.swept import with_swept
from analysis.heatmap.cell_text import has_bf16_states
from analysis.tables import versions_of
from sweep.files import column_problem
from tests.support import hostile_records
from tests.support.made_records import as_json, made_record, made_run
from tests.support.watched import watched

TURNED = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
OUT = "out"
STARTED = {
    "subprocess.Popen ('uname', ['uname', '-p'])",
    "subprocess.Popen ('scontrol', ['scontrol', 'show', 'topology'])",
}
"""what is started whatever a record states: by Python's platform module for mlflow's client; by `plan`, where a machine
has Slurm
"""


def commands(out, table, csv, run):
    """Every command that reads records, of a results file and of a sweep."""
    for source in (table, "s"):
        yield ("best", source)
        yield from (("best", source, "--format", form) for form in ("json", "csv", "markdown", "flags"))
        yield from (("best", source, "--format", form, "--out", out, "--skip") for form in ("command", "megatron"))
        yield ("best", source, "--filter", "zero <= 1", "--metric", "mfu")
        yield ("report", source, "--out", out / f"{source}.html", "--no-figures")
        yield from (("heatmap", source, "--out", out / f"{source}.svg"), ("heatmap", source, "--json"))
        yield ("compare", source, table)
        yield from (("explain", source, "--gap"), ("explain", source, "--gap", "--json"))
        yield ("plan", "grid.yaml", "--from", source)
        yield ("size", "--params", "3B", "--tokens", "1T", "--days", 3, "--from", source)
    yield from (("memory", "config.json", "--dp", 8), ("plan", "grid.yaml", "-o", "models={theirs: config.json}"))
    for words in (("status", "s"), ("nodes", "s"), ("explain", "s", run), ("logs", "s", run)):
        yield from (words, (*words, "--json"))
    yield from (("logs", "s", "--pilot", "p0001"), ("explain", "--log", f"s/logs/{run}.1.log"))
    yield from (("import", csv, "--out", out / "imported.parquet"), ("collect", "s", "--json"), ("plan", "s/grid.yaml"))
    packed = out / "a.tar.zst"
    yield from (("archive", "s", "--out", packed), ("archive", packed, "--open", "--out", "opened"))
    yield ("report", packed, "--out", out / "a.html", "--no-figures")
    yield ("track", "s", "--to", "mlflow")


AFTER_TABLES_CHANGED = [("best", "s"), ("status", "s"), ("explain", "s", "tiny", "--json"), ("heatmap", "s", "--json")]
"""what reads the derived files, which a stranger writes too"""


class _Elements(HTMLParser):
    def __init__(self):
        super().__init__()
        self.strange = []

    def handle_starttag(self, tag, attrs):
        self.strange += [name for name in (tag, *(name for name, _ in attrs)) if hostile_records.OWNED in name]


def check(words, done, root):
    """Nothing that was asked for by a record happened."""
    about = f"{words}: {done.err[-3000:]}"
    assert done.code in (0, 1, 2), about
    assert "Traceback" not in done.err, about
    assert set(done.started) <= STARTED, (about, done.started)
    outside = [path for path in done.changed if not Path(path).is_relative_to(root) and path != os.devnull]
    assert not outside, (about, outside)
    assert not [path for path in done.read if path in ("/etc/passwd", "/dev/zero")], about
    for character in set(done.out + done.err) - {"\n", "\t", "\r"}:
        assert unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp"), (about, character)
        assert unicodedata.bidirectional(character) not in TURNED, (about, character)
    if done.code == 0 and {"json", "--json"} & set(words) and done.out:
        json.loads(done.out)


def feed(root, seed, choose):
    """One stranger's sweep and tables through the commands that ``choose`` takes of the list."""
    (root / OUT).mkdir()
    place = hostile_records.sweep(root / "s", random.Random(seed))  # what it draws depends on this machine's facts
    table = hostile_records.table(root / "t.parquet", random.Random(seed)).name
    csv = hostile_records.text_table(root / "c=1;x.csv", random.Random(seed)).name
    (root / "grid.yaml").write_text(hostile_records.GRID)
    (root / "config.json").write_text(hostile_records.config(random.Random(seed)))
    run = min(path.name for path in (place.path / "logs").iterdir()).rpartition(".1.log")[0]
    before = {path.name for path in root.iterdir()}
    for words in choose(list(commands(root / OUT, table, csv, run))):
        check(words, watched(*words, cwd=root), root)
    for number in range(2):
        hostile_records.tables(place, random.Random(seed + number))
        for words in choose(AFTER_TABLES_CHANGED):
            check(words, watched(*words, cwd=root), root)
    assert {path.name for path in root.iterdir()} - before <= {"opened", "heatmap.png"}
    assert not [path for path in root.rglob("*") if path.name == hostile_records.OWNED]
    for page in (root / OUT).glob("*.html"):
        elements = _Elements()
        elements.feed(page.read_text())
        assert not elements.strange, page.name


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Archives are opened in a temporary directory: it is below."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    return tmp_path


@pytest.mark.parametrize("seed", [1, 2])
def test_a_strangers_values_stay_values(root, seed):
    """A tenth of the commands for each seed: all of them, with the slow tracker, are in the long test."""
    feed(root, seed, lambda words: [one for one in words if one[0] != "track"][seed::10])


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(100, 120))
def test_a_strangers_values_stay_values_in_every_command(root, seed):
    feed(root, seed, lambda words: words)


def stated(chance):
    """A record that a file may hold, with hostile JSON and numbers."""
    record = as_json(made_record(made_run(), gpu="h100"))
    for name in ("shape_json", "params_json", "versions_json", "env_json"):
        values = json.loads(record[name] or "{}") or {"weights_dtype": "bf16", "optimizer": "adam", "num_layers": 2}
        record[name] = json.dumps(hostile_records.spoiled(values, chance, chance.choice((0, 0.3))))
    for name in ("dp", "tp", "pp", "micro_batch_size", "sequence_length", "nodes", "gpus_per_node"):
        if chance.random() < 0.1:
            record[name] = chance.choice((0, -1, 7, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)))
    return record


@pytest.mark.filterwarnings("ignore")
def test_what_is_derived_from_columns_of_json_takes_any_that_is_read():
    """What `column_problem` refuses is no record: a file with it is refused with the reason."""
    chance, read = random.Random(38), 0
    for _ in range(60):
        rows = [stated(chance) for _ in range(3)]
        rows = [row for row in rows if not any(column_problem(name, row[name]) for name in row if _is_json(name, row))]
        if rows:
            table = pd.DataFrame(rows)
            with_swept(table, table)
            versions_of(table)
            [has_bf16_states(row) for row in rows]
        read += len(rows)
    assert read > 30


def _is_json(name, row):
    return name.endswith("_json") and row[name] is not None


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("params_json", f'{{"a": {10**400}}}', "not finite, or too long"),
        ("params_json", '{"a": 1e400}', "not finite, or too long"),
        ("env_json", '{"a": NaN}', "not finite, or too long"),
        ("shape_json", '{"num_layers": "4"}', "no model's shape"),
        ("shape_json", '{"num_layers": 4}', "no model's shape"),
    ],
)
def test_what_a_column_of_json_may_not_state(name, text, words):
    assert re.search(words, column_problem(name, text))
    assert column_problem(name, "{}") is None
