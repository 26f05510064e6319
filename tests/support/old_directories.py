"""What the command line reports about a recorded sweep directory, as plain values: by old code and new code.

Nothing of sweep is imported here, so that any version can be run. `python tests/support/old_directories.py CHECKOUT`
writes the answers of the code in CHECKOUT to `expected/`: to be run with the commit that wrote the directories.
"""

import html.parser
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import psutil
import pyarrow.parquet

from tests.support import driving

HERE = Path(__file__).parents[1] / "compatibility"
RECORDED = HERE / "recorded"
EXPECTED = HERE / "expected"
NAMES = ("unfinished", "finished")
TABLES = ("results", "pilots", "timeline")
HOST = "the-host-on-which.commit-5362d08.wrote-this-sweep-directory-once"
"""the recorded directories' host; of the maximum length on Linux"""
COMMAND = [sys.executable, "-c", "from sweep.cli.main import main; main()"]
SNAPSHOTS = {"snapshot.json", "snapshot.msgpack"}
DERIVED = {"results.parquet", "pilots.parquet", "timeline.parquet", "report.html", "launcher.out"} | SNAPSHOTS
"""files of a sweep directory that may change; so may all in figures/"""


def environment(checkout=None, more=None):
    """The environment in which the code of a checkout runs; None: the code under test."""
    return {**os.environ, **(more or {}), **({} if checkout is None else {"PYTHONPATH": str(checkout)})}


def sweep(*arguments, cwd, checkout=None, env=None, timeout=120):
    """A `sweep` command to its end. The working directory must hold no code of sweep: it would be imported first."""
    if checkout is None:
        return driving.run(*arguments, env=env, cwd=cwd, timeout=timeout)
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env=environment(checkout, env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def start(*arguments, cwd, checkout=None, errors=subprocess.DEVNULL):
    """A `sweep` command in the background. ``errors``: where its messages go."""
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env=environment(checkout),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        start_new_session=True,
    )


def copied(name, into):
    """A copy of a recorded directory, as it would be on this host after a restart: with this host's name.

    A local pilot is identified by its host, its boot and its start. From another host its end cannot be detected.
    """
    directory = Path(into) / name
    shutil.copytree(RECORDED / name, directory)
    for path in directory.rglob("*"):
        if path.is_file() and path.suffix != ".parquet" and HOST.encode() in (data := path.read_bytes()):
            path.write_text(_of_this_host(data.decode()))
    return directory


def _of_this_host(text):
    """JSON in which the host is this one. Its length stays: derived files store how many bytes they had read."""
    host = socket.gethostname()
    padding = " " * (len(HOST) - len(host))
    rest_of_string = re.escape(HOST) + r'((?:[^"\\]|\\.)*)"'
    changes = 1
    while changes:
        text, changes = re.subn(rest_of_string, lambda found: f'{host}{found[1]}"{padding}', text)
    return text


def truth(directory):
    """Relative path -> bytes of append-only files."""
    paths = [path for path in Path(directory).rglob("*") if path.is_file() and path.name not in DERIVED]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths if path.parent.name != "figures"}


def events(directory):
    """All whole lines of all journals, oldest first."""
    lines = [
        line for path in (Path(directory) / "journal").glob("*.jsonl") for line in path.read_text().splitlines(True)
    ]
    return sorted((json.loads(line) for line in lines if line.endswith("\n")), key=lambda event: event["time"])


def records(directory):
    """The records in the journals, oldest first."""
    return [event["record"] for event in events(directory) if event["event"] == "record"]


def rows(path):
    """The rows of a table, the host's name and the directory's taken out."""
    return _plain(pyarrow.parquet.read_table(path).to_pylist(), path.parent)


def processes(directory):
    """Every live process of a sweep's pilots, as text."""
    sweep_id = json.loads((Path(directory) / "provenance.json").read_text())["sweep_id"]
    found = []
    for process in psutil.process_iter():
        try:
            mark = process.environ().get("SWEEP_PILOT", "")
            if mark.startswith(sweep_id) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {' '.join(process.cmdline())[:150]}")
        except (psutil.Error, OSError):
            continue
    return found


# --- the questions


def status(directory, checkout=None):
    """`sweep status`, without values that depend on the current time."""
    document = _json("status", directory, checkout=checkout)
    if any(pilot["gone"] is None for pilot in document["pilots"]):
        for name in ("eta", "eta_s", "gpu_hours"):
            del document[name]
    return document | {"counts": _left_out_together(document["counts"])}


def _left_out_together(counts):
    """Which of the runs that are left out the search skips, and which the budget, is for the search of today to say."""
    skipped = {"not_run_strategy", "not_run_budget"}
    both = sum(counts.get(name, 0) for name in skipped)
    return {name: number for name, number in counts.items() if name not in skipped} | {"left_out": both}


def collected(directory, checkout=None):
    """`sweep collect`, and the rows of the three tables that it writes."""
    answer = _json("collect", directory, checkout=checkout)
    return {"said": answer, **{name: rows(directory / f"{name}.parquet") for name in TABLES}}


def best(directory, checkout=None):
    """`sweep export best`."""
    return _json("export", "best", directory, checkout=checkout)


def heatmap(directory, checkout=None):
    """The cells of `sweep heatmap`; the image's format is checked."""
    cells = _json("heatmap", directory, checkout=checkout)["cells"]
    assert (directory / "figures" / "heatmap.png").read_bytes().startswith(b"\x89PNG")
    return cells


def report(directory, checkout=None):
    """The facts at the head of `sweep report`, the best configurations, and their verdicts."""
    answer = _json("report", directory, "--no-figures", checkout=checkout)
    page = _Page((directory / "report.html").read_text())
    return {"attempts": answer["attempts"], "facts": page.facts, "heat": page.tables[0], "sure": page.tables[1]}


def nodes(directory, checkout=None):
    """`sweep nodes`."""
    return _json("nodes", directory, checkout=checkout)["nodes"]


def explained(directory, checkout=None):
    """`sweep explain` of a run for each outcome of those that failed."""
    failed = {
        failure["outcome"]: failure["run_id"] for failure in _json("status", directory, checkout=checkout)["failures"]
    }
    return [_json("explain", directory, run_id, checkout=checkout) for _, run_id in sorted(failed.items())]


def grids_known(directory, checkout=None):
    """What `sweep extend` would add of the sweep's own grids: nothing, as long as their runs have the same ids."""
    grids = sorted(path for path in directory.glob("grid*.yaml"))
    return [_json("extend", directory, grid, "--dry-run", checkout=checkout) for grid in grids]


QUESTIONS = {
    "status": status,
    "nodes": nodes,
    "collected": collected,
    "best": best,
    "heatmap": heatmap,
    "report": report,
    "explained": explained,
    "grids_known": grids_known,
}


def answers(directory, checkout=None):
    """Question -> answer, for a directory that was not read before."""
    return {name: question(directory, checkout) for name, question in QUESTIONS.items()}


def ending(directory, checkout=None):
    """The final state of the sweep: the outcomes of the runs, and the cells with a best configuration."""
    final = {row["run_id"]: row["outcome"] for row in collected(directory, checkout)["results"] if row["final"]}
    cells = sorted([row["model"], row["nodes"]] for row in best(directory, checkout))
    return {"counts": status(directory, checkout)["counts"], "final": dict(sorted(final.items())), "cells": cells}


def doubled(directory):
    """The attempts with several records, and the attempts that were claimed and have none, or the other way round."""
    counts = Counter(f"{record['run_id']}.{record['attempt']}" for record in records(directory))
    claims = {path.name for path in (Path(directory) / "claims").iterdir() if not path.name.startswith(".")}
    return sorted(name for name, count in counts.items() if count > 1) + sorted(claims ^ set(counts))


def _json(*arguments, checkout):
    directory = next(argument for argument in arguments if isinstance(argument, Path))
    done = sweep(*arguments, "--json", cwd=directory.parent, checkout=checkout)
    assert done.returncode == 0, done.stderr
    return _plain(json.loads(done.stdout), directory)


def _plain(value, directory):
    """The value without the names of this host and of the directory's place."""
    text = json.dumps(value).replace(str(directory), "DIR")
    return json.loads(re.sub(r"(local-\d+-[0-9a-f]+\.\d+@)[\w.-]+", r"\1HOST", text))


class _Page(html.parser.HTMLParser):
    """The facts (term, value) and the tables (rows of cells) of a report, as texts."""

    def __init__(self, text):
        super().__init__()
        self.facts, self.tables = [], []
        self._words = None
        self.feed(text)

    def handle_starttag(self, tag, _attributes):
        if tag == "table":
            self.tables.append([])
        elif tag == "tr" and self.tables:
            self.tables[-1].append([])
        elif tag in ("td", "th", "dt", "dd"):
            self._words = []

    def handle_data(self, data):
        if self._words is not None:
            self._words += data.split()

    def handle_endtag(self, tag):
        if tag not in ("td", "th", "dt", "dd") or self._words is None:
            return
        text, self._words = " ".join(self._words), None
        if tag in ("dt", "dd"):
            self.facts.append(text)
        elif self.tables and self.tables[-1]:
            self.tables[-1][-1].append(text)


def expected(name):
    """The answers stored in `expected/`; null values of rows are omitted there."""
    answers = json.loads((EXPECTED / f"{name}.json").read_text())
    for each in (answers, answers.get("status", {})):
        if "counts" in each:
            each["counts"] = _left_out_together(each["counts"])
    for table, columns in answers.pop("columns", {}).items():
        nulls = dict.fromkeys(columns)
        answers["collected"][table] = [nulls | row for row in answers.pop(table)]
    return answers


def _write(path, document):
    """JSON with one line for each item of a list."""
    parts = []
    for name, value in document.items():
        items = [json.dumps(item, ensure_ascii=False) for item in value] if isinstance(value, list) else None
        text = json.dumps(value, ensure_ascii=False) if items is None else "[\n  " + ",\n  ".join(items) + "\n ]"
        parts.append(f" {json.dumps(name)}: {text}")
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def _main(checkout):
    EXPECTED.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in NAMES:
            answer = answers(copied(name, folder), checkout)
            tables = {table: answer["collected"].pop(table) for table in TABLES}
            known = [
                [{key: value for key, value in row.items() if value is not None} for row in tables[t]] for t in TABLES
            ]
            columns = {table: list(tables[table][0]) for table in TABLES}
            _write(EXPECTED / f"{name}.json", {**answer, "columns": columns, **dict(zip(TABLES, known, strict=True))})
            fresh = copied(name, Path(folder) / "again")
            done = sweep("resume", fresh, cwd=folder, checkout=checkout)
            assert done.returncode == 0, done.stderr
            _write(EXPECTED / f"{name}-resumed.json", ending(fresh, checkout))


if __name__ == "__main__":
    _main(Path(sys.argv[1]).resolve())
