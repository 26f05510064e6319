"""What reaches a terminal: others' texts do nothing there, whatever printed them; and a pipe that its reader closes."""

import csv
import io
import json
import os
import re
import subprocess
import sys
import time
import unicodedata
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.cli.terminal import printable
from sweep.files import csv_of
from sweep.outcomes import Outcome
from sweep.records.collect import write_results
from sweep.state.events import CancelRequested, PilotEnded
from sweep.store.sweep import Sweep
from tests.support.command_line import Command
from tests.support.driving import SWEEP, succeeds
from tests.support.made_records import made_record, made_run, write_journal
from tests.support.made_sweeps import GRID, made, pilot_wrote
from tests.support.paths import REPOSITORY
from tests.support.streams import before_a_closed_pipe, on_a_terminal

RESULTS = REPOSITORY / "docs" / "data" / "laptop.parquet"
TITLE, CLEAR, RED, C1, BIDI = "\x1b]0;mine\x07", "\x1b[2J", "\x1b[31m", "\x9b31m", "\u202egpj.exe"
HOSTILE = f"{TITLE}{CLEAR}{RED}{C1}{BIDI}a\rb[bold]c[/bold][/] [link=file:///etc]d[/link]:smile:"
OWN = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[hl]|\x1b\[\d*[AK]|\r\n|\r\x1b|\n|\t")
"""what rich writes: colours, the cursor's visibility, lines up and their erasure; and line ends"""
ACTS = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}


def test_no_character_that_acts_on_a_terminal_is_printed() -> None:
    characters = list(map(chr, range(sys.maxunicode + 1)))
    acting = [c for c in characters if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
    acting += [c for c in characters if unicodedata.bidirectional(c) in ACTS]
    passed = {c for c in acting if not re.fullmatch(r"\\u[0-9a-f]{4}", printable(c))}
    assert passed == {"\n", "\t"}
    text = "".join(c for c in characters if unicodedata.category(c)[0] in "LNPS" or unicodedata.category(c) == "Zs")
    assert printable(text) == text


@given(st.text(st.characters(exclude_categories=())))
def test_json_has_the_same_values_once_it_is_printed(text: str) -> None:
    document = printable(json.dumps({text: [text]}, ensure_ascii=False))
    paired = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")  # as JSON's escapes are read
    assert json.loads(document) == {paired: [paired]}
    assert printable(document) == document


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    sweep = made(tmp_path / "s")
    pilot_wrote(sweep, "p0001", *((run.run_id, 1, Outcome.HANG) for run in sweep.runs))
    sweep.directory.log(sweep.runs[0].run_id, 1).write_text(f"{HOSTILE}\nsecond\r\n", newline="")
    (sweep.directory.pilot("p0001") / "stderr").write_text(HOSTILE, newline="")
    return sweep


def test_logs_show_escape_sequences_as_text(sweep: Sweep, command: Command) -> None:
    for words in (["--pilot", "p0001"], [f"{sweep.runs[0].run_id}.1"]):
        out = command("logs", sweep.directory.path, *words)[1]
        assert out.startswith(r"\u001b]0;mine\u0007\u001b[2J\u001b[31m\u009b31m\u202egpj.exea")
        assert "\nb[bold]" in out
        document = command("logs", sweep.directory.path, *words, "--json")[1]
        assert json.dumps(HOSTILE.replace("\r", "\n"))[1:-1] in document


def hostile_results(path: Path) -> Path:
    record = made_record(made_run(model=f"{HOSTILE}|x\n<b>[y](http://z)"), gpu=f"=1{HOSTILE}", sweep_name=HOSTILE)
    write_results(path, [record])
    return path


@pytest.mark.parametrize("words", [["best"], ["best", "--format", "csv"], ["compare", "BASE"], ["explain", "--gaps"]])
def test_tables_and_texts_of_others_do_nothing_on_a_terminal(tmp_path: Path, words: list[str]) -> None:
    results = hostile_results(tmp_path / "results.parquet")
    shown = on_a_terminal(words[0], results, *(str(results) if word == "BASE" else word for word in words[1:]))
    assert "Traceback" not in shown
    for text in (TITLE, CLEAR, RED, C1, BIDI, "a\rb", "file:///etc\x1b"):
        assert text not in shown
    assert printable(OWN.sub("", shown)) == OWN.sub("", shown)


def test_a_table_has_the_programs_own_colours_and_shows_markup_as_text(tmp_path: Path) -> None:
    shown = re.sub(r"[│\s]|\x1b\[[0-9;]*m", "", on_a_terminal("best", hostile_results(tmp_path / "results.parquet")))
    assert r"\u202egpj.exeab[bold]c[/bold][/]" in shown
    assert "\N{SMILING FACE WITH OPEN MOUTH AND SMILING EYES}" not in shown
    assert "\x1b[" in on_a_terminal("best", RESULTS)


@pytest.mark.parametrize("live", [[], ["--watch"]])
def test_failures_and_damage_do_nothing_on_a_terminal_live_or_not(sweep: Sweep, live: list[str]) -> None:
    journal = next(sweep.directory.path.glob("journal/pilot-*.jsonl"))
    journal.write_text(journal.read_text().replace('"message":null', f'"message":{json.dumps(HOSTILE)}'))
    with journal.open("a") as file:
        file.write('{"event":"\x9bno event"}\n')
    last = [PilotEnded(time=time.time(), pilot="p0001", reason=HOSTILE), CancelRequested(time=time.time())]
    for writer, event in zip(("pilot-p0001", "cancel-1"), last, strict=True):
        write_journal(sweep.directory, writer, [event])
    shown = on_a_terminal("status", sweep.directory.path, *live)
    assert "hang" in shown
    assert printable(OWN.sub("", shown)) == OWN.sub("", shown)


def test_markdown_has_a_line_per_row_and_no_markup_of_others_and_csv_no_formula(
    tmp_path: Path, command: Command
) -> None:
    lines = command("best", hostile_results(tmp_path / "results.parquet"), "--format", "markdown")[1].splitlines()
    lines = [line for line in lines if line.startswith("|")]
    assert len(lines) == 3
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    assert not re.search(r"(?<!\\)[<>]|(?<!\\)\]\(", lines[2])
    (row,) = csv.DictReader(io.StringIO(command("best", tmp_path / "results.parquet", "--format", "csv")[1]))
    assert row["gpu"].startswith("'=1"), "by `csv_of`: see below"


CELLS = ["=1+1", "+1", "-1", "@x", "\t=1", "'=1", "''@x", "'x", "x=1", "", "plain", '"=1"', "=a\n=b", "=\"';,"]


def test_no_text_of_a_csv_file_begins_as_a_formula_and_import_reads_the_same_back(
    tmp_path: Path, command: Command
) -> None:
    rows = [{"model": "1B", "sequence_length": 64, "nodes": 1, "tokens_per_second_per_gpu": 9.5 + at, "source": cell,
             "shift": -at} for at, cell in enumerate(CELLS)]  # fmt: skip
    text = csv_of(rows)
    read = list(csv.DictReader(io.StringIO(text)))
    assert not [row["source"] for row in read if row["source"].startswith(tuple("=+-@\t\r"))]
    assert [int(row["shift"]) for row in read] == [-at for at in range(len(CELLS))]
    (tmp_path / "own.csv").write_text(text)
    command.shown("import", tmp_path / "own.csv", "--out", tmp_path / "own.parquet")
    table = pq.read_table(tmp_path / "own.parquet", columns=["shift", "source"]).to_pydict()
    assert dict(zip(*table.values(), strict=True)) == {-at: cell for at, cell in enumerate(CELLS)}
    assert csv_of([{"a": "=\0", "b": "x\0"}]) == "a,b\n'=\\u0000,x\\u0000\n"


READING = (
    ["best", RESULTS],
    ["best", RESULTS, "--json"],
    ["status", "s"],
    ["plan", "grid.yaml"],
    ["logs", "s", "RUN"],
    ["explain", "s", "RUN"],
    ["nodes", "s"],
    ["collect", "s", "--json"],
    ["size", "--model", "1B", "--gpus", "8", "--tokens", "1T"],
    ["--help"],
)


def test_a_pipe_that_its_reader_closed_ends_a_command_quietly(
    sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.yaml").write_text(GRID)
    ended = {}
    for words in READING:
        named = [sweep.runs[0].run_id if word == "RUN" else word for word in words]
        code, err = before_a_closed_pipe(*named)
        ended[" ".join(map(str, words))] = code, "Traceback" in err or "Exception" in err
    assert ended == dict.fromkeys(ended, (141, False))


def test_characters_that_a_terminals_encoding_lacks_become_question_marks(tmp_path: Path) -> None:
    """The table of results has a dash for what is unknown (the MFU of a CPU); and the path of a sweep."""
    table = ("best", RESULTS, "--model", "tiny-1M", "--nodes", "1")
    status = ("status", made(tmp_path / "m\u00fcnchen").directory.path)
    for encoding, words, shown in (
        ("utf-8", table, "\u2013"), ("ascii", table, " ? |"), ("latin-1", table, " ? |"), ("ascii", status, "m?nchen"),
    ):  # fmt: skip
        argv, environment = [*SWEEP, *map(str, words)], os.environ | {"PYTHONIOENCODING": encoding}
        done = subprocess.run(argv, env=environment, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert shown in done.stdout.decode(encoding), encoding


@pytest.mark.parametrize(("shell", "code", "err"), [
    ('"$@" memory 8B >&-', 0, ""), ('"$@" memory nope <&- >&- 2>&-', 2, ""),
    ('"$@" explain --log - <&-', 2, "error: -: is empty: there is nothing to diagnose (name another log)\n"),
    ('mkdir gone; cd gone; rmdir ../gone; "$@" status', 2,
     "error: the working directory is gone (change to one that exists)\n"),
])  # fmt: skip
def test_without_an_output_or_a_working_directory(shell: str, code: int, err: str, tmp_path: Path) -> None:
    words = ["sh", "-c", shell, "-", sys.executable, "-m", "sweep.cli.main"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", err)


def test_a_launch_whose_output_is_closed_leaves_a_sweep_that_a_resume_continues(tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text(GRID)
    one = ["-o", "nodes=1", "-o", "micro_batch_size=1", "--dir", tmp_path / "s", "--yes", "--executor", "local"]
    code, _ = before_a_closed_pipe("launch", tmp_path / "grid.yaml", *one, stream=2)
    assert code == 141
    left = json.loads(succeeds("status", tmp_path / "s", "--json").stdout)
    assert (left["launcher"], [pilot for pilot in left["pilots"] if pilot["gone"] is None]) == (None, [])
    succeeds("resume", tmp_path / "s")
    outcomes = pq.read_table(tmp_path / "s" / "results.parquet", columns=["outcome"]).to_pydict()["outcome"]
    assert outcomes.count("ok") == 1
