"""Sweep directories that commit 5362d08 wrote: read, collected, reported and resumed by the current code.

`recorded/README.md` describes how they were made, `tests/support/old_directories.py` reads them.
"""

import json
import math
import re
from collections import Counter

import pytest

from tests.support import old_directories
from tests.support.old_directories import NAMES, RECORDED, copied, doubled, expected, records, sweep, truth


def differences(now, then, place="", left_out=()):
    """The differing values, as text. Additional keys of objects are new, and no difference."""
    if isinstance(then, dict) and isinstance(now, dict):
        keys = [key for key in then if key not in left_out]
        return [found for key in keys for found in differences(now.get(key), then[key], f"{place}.{key}", left_out)]
    if isinstance(then, list) and isinstance(now, list):
        if len(now) != len(then):
            return [f"{place}: {len(now)} things, not {len(then)}"]
        pairs = enumerate(zip(now, then, strict=True))
        return [found for i, (a, b) in pairs for found in differences(a, b, f"{place}[{i}]", left_out)]
    if isinstance(then, float) and isinstance(now, (int, float)):
        return [] if math.isclose(now, then, rel_tol=1e-9) else [f"{place}: {now}, not {then}"]
    return [] if now == then else [f"{place}: {now!r}, not {then!r}"]


# --- read


@pytest.fixture(scope="module", params=NAMES)
def asked(request, tmp_path_factory):
    """A directory after all questions: (its name, its path, its append-only files before, the answers)."""
    directory = copied(request.param, tmp_path_factory.mktemp("asked"))
    before = truth(directory)
    return request.param, directory, before, old_directories.answers(directory)


@pytest.mark.parametrize("question", old_directories.QUESTIONS)
def test_the_answers_are_those_of_the_code_that_wrote_it(asked, question):
    name, _, _, answers = asked
    now, then = answers[question], expected(name)[question]
    if question == "collected":  # a table without the columns of today is rebuilt, so all rows are new
        assert now["said"].pop("new") == len(then["results"])
    if question == "report":
        # what else than the layout differs among the configurations is shown today
        shown = r'( \u00b7)? fault=\\"\\"'
        now = json.loads(re.sub(shown, "", json.dumps(now, ensure_ascii=False)))
        # how sure depends on repeats today; then, on the iterations of one run
        assert (then["facts"][-2], now["facts"][-2]) == ("GPU-hours of attempts", "rank-minutes of attempts")
        assert float(now["facts"][-1]) == pytest.approx(60 * float(then["facts"][-1]), rel=5e-3)  # three digits
        # of the runs that were not measured, those left out by the search and those stopped by a user count apart
        assert sum(int(now["facts"][at]) for at in (5, 7)) == sum(int(then["facts"][at]) for at in (5, 7))
        # memory is in GiB everywhere
        now, then = (json.loads(re.sub(r"[\d.]+ [GM]iB", "", json.dumps(answer))) for answer in (now, then))
        for answer in (now, then):
            answer["sure"] = [row[:-1] for row in answer["sure"]]
            answer["facts"] = answer["facts"][:5]
    assert differences(now, then, left_out=("new",) if question == "collected" else ()) == []


def test_reading_changes_nothing_that_is_written_once(asked):
    _, directory, before, _ = asked
    assert truth(directory) == before


@pytest.mark.parametrize("name", NAMES)
def test_without_what_is_derived_the_answers_are_the_same(tmp_path, name):
    """The tables and the snapshot stored by the old code are continued, or ignored: never misread."""
    directory = copied(name, tmp_path)
    for path in directory.iterdir():
        if path.name in old_directories.DERIVED:
            path.unlink()
    then, now = expected(name), old_directories.collected(directory)
    assert now["said"].pop("new") == len(then["collected"]["results"])
    assert differences(now, then["collected"], left_out=("new",)) == []
    assert differences(old_directories.status(directory), then["status"]) == []


def test_stored_files_of_an_attempt_are_shown(asked):
    _, directory, _, _ = asked
    failed = next(record for record in records(directory) if record["outcome"] in ("oom_cuda", "hang"))
    name = f"{failed['run_id']}.{failed['attempt']}"
    done = sweep("logs", directory, failed["run_id"], "--attempt", failed["attempt"], cwd=directory.parent)
    assert done.returncode == 0, done.stderr
    retained = (RECORDED / directory.name / "logs" / f"{name}.log").read_text()
    assert [line for line in retained.splitlines() if line not in done.stdout] == []


def test_two_old_sweeps_are_compared(tmp_path):
    first, second = (copied(name, tmp_path) for name in ("finished", "unfinished"))
    done = sweep("compare", first, second, "--anyway", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    best = [
        {(c["model"], c["nodes"]): c["tokens_per_second_per_gpu"] for c in expected(d.name)["best"]}
        for d in (first, second)
    ]
    for cell in json.loads(done.stdout)["cells"]:
        of_cell = [side.get((cell["model"], cell["nodes"])) for side in best]
        assert [cell["value_a"], cell["value_b"]] == pytest.approx(of_cell)


# --- resumed


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    """The unfinished one after a resume: (its path, its append-only files before, the tables before)."""
    directory = copied("unfinished", tmp_path_factory.mktemp("resumed"))
    before, tables = truth(directory), old_directories.collected(directory)
    done = sweep("resume", directory, cwd=directory.parent)
    assert done.returncode == 0, done.stderr
    return directory, before, tables


def test_a_resume_measures_what_was_missing(resumed):
    directory, _, _ = resumed
    assert old_directories.ending(directory) == expected("unfinished-resumed")
    document = old_directories.status(directory)
    assert [pilot["name"] for pilot in document["pilots"] if pilot["gone"] is None] == []
    assert [cell for cell in document["cells"] if cell["settled"] != cell["runs"]] == []


def test_each_run_is_measured_once_and_again_only_where_that_was_asked_for(resumed):
    directory, _, _ = resumed
    assert doubled(directory) == []
    asked_for = Counter(event["run_id"] for event in old_directories.events(directory) if event["event"] == "rerun")
    assert sum(asked_for.values()) == 2
    ok = Counter(record["run_id"] for record in records(directory) if record["outcome"] == "ok")
    final = expected("unfinished-resumed")["final"]
    assert ok == Counter({run_id: 1 + asked_for[run_id] for run_id, outcome in final.items() if outcome == "ok"})


def test_what_was_started_and_never_recorded_is_lost(resumed):
    """One attempt was being measured when the power failed, one was claimed and not started."""
    directory, before, _ = resumed
    outcomes = {f"{record['run_id']}.{record['attempt']}": record["outcome"] for record in records(directory)}
    known = {f"{record['run_id']}.{record['attempt']}" for record in records(RECORDED / "unfinished")}
    left = {path.removeprefix("claims/") for path in before if path.startswith("claims/")} - known
    assert [outcomes[name] for name in left] == ["lost", "lost"]


@pytest.mark.long
def test_a_report_with_figures_is_made(resumed):
    directory, _, _ = resumed
    done = sweep("report", directory, cwd=directory.parent)
    assert done.returncode == 0, done.stderr
    page = (directory / "report.html").read_text()
    final = expected("unfinished-resumed")["final"]
    assert sum(run_id in page for run_id in final) >= len(expected("unfinished-resumed")["cells"])
    assert page.count("data:image/") > 1


def test_existing_files_are_not_changed(resumed):
    directory, before, tables = resumed
    after = truth(directory)
    assert [path for path, data in before.items() if after.get(path) != data] == []
    rows = {(row["run_id"], row["attempt"]): row for row in old_directories.rows(directory / "results.parquet")}
    for row in tables["results"]:
        now = rows[row["run_id"], row["attempt"]]
        assert differences(now, row, left_out=("final", "surplus")) == []


def test_a_second_resume_does_nothing(resumed):
    directory, _, _ = resumed
    before, pilots = len(records(directory)), sorted((directory / "pilots").iterdir())
    grid = directory.parent / "grid.yaml"
    grid.write_text(json.loads((directory / "provenance.json").read_text())["grid"])
    for again in (["resume", directory, "--yes"], ["launch", grid, "--dir", directory, "--executor", "local", "--yes"]):
        done = sweep(*again, cwd=directory.parent)
        assert done.returncode == 0, done.stderr
    assert len(records(directory)) == before
    assert sorted((directory / "pilots").iterdir()) == pilots
    assert old_directories.processes(directory) == []


@pytest.mark.long
def test_a_finished_one_has_nothing_to_resume(tmp_path):
    directory = copied("finished", tmp_path)
    before = truth(directory)
    done = sweep("resume", directory, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert old_directories.ending(directory) == expected("finished-resumed")
    after = truth(directory)
    assert {path: after[path] for path in before} == before
    assert {path.split("/")[0] for path in set(after) - set(before)} == {"journal", "launchers"}
