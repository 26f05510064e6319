"""`sweep compare`: two sweeps, several, and one against a baseline as a guard in CI."""

import json

import pandas as pd
import pytest

import sweep
from tests.support import driving
from tests.support.compared import results


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Three sweeps of a cell, the last 6 % slower."""
    folder = tmp_path_factory.mktemp("compared")
    return [results(folder / f"{name}.parquet", factor) for name, factor in (("a", 1.0), ("b", 1.001), ("c", 1.06))]


def test_two_are_compared_cell_by_cell_and_no_change_is_a_failure(files):
    a, b, c = files
    same = driving.succeeds("compare", a, b)
    assert "0 changed" in same.stdout
    slower = driving.run("compare", a, c)
    assert slower.returncode == 0, "only a baseline makes it a check"
    assert "1 worse" in slower.stdout
    document = json.loads(driving.run("compare", a, c, "--json").stdout)
    assert document["steps"][0]["cells"][0]["typical"]["change"] == pytest.approx(1 / 1.06 - 1, abs=0.002)
    assert document["simulated"] == []
    assert json.loads(json.dumps(sweep.compare(a, c).document())) == document


def test_of_several_a_slower_third_is_named(files):
    shown = driving.succeeds("compare", *files)
    for step in ("1B on 1: 2 -> 3: -5.", "1B on 1: 1 -> 3: -5."):
        assert step in shown.stdout


@pytest.mark.parametrize(("words", "mistakes"), [
    (["a"], ["at least two"]), (["a", "none"], ["no such results"]),
    (["a", "b", "--within", "3%"], ["--within: has no effect without --baseline"]),
    (["a", "b", "--baseline", "c", "--anyway"],
     ["--anyway: has no effect with --baseline", "one sweep is checked"]),
    (["a", "--baseline", "a"], ["its own results"]), (["a", "--baseline", "b", "--within", "lots"], ["write 3%"]),
])  # fmt: skip
def test_what_cannot_be_compared_is_refused(files, tmp_path, words, mistakes):
    names = {file.stem: file for file in files} | {"none": tmp_path / "none"}
    done = driving.run("compare", *(names.get(word, word) for word in words))
    assert (done.returncode, done.stdout) == (2, "")
    for mistake in mistakes:
        assert mistake in done.stderr


def test_a_run_that_was_cancelled_is_listed_apart_from_those_that_fail(files, tmp_path):
    rows = pd.read_parquet(files[0])
    rows.loc[0, ["outcome", "message"]] = ["cancelled", "by the user"]
    rows.to_parquet(tmp_path / "new.parquet")
    done = driving.succeeds("compare", files[0], tmp_path / "new.parquet")
    assert "fail in B" not in done.stdout
    assert "stopped in B before they were measured and worked in A: 1 configuration:" in done.stdout


def test_a_baseline_makes_it_a_guard(files):
    a, b, c = files
    passed = driving.succeeds("compare", b, "--baseline", a)
    assert "passed within 5 % of the baseline: 7 workloads, 6 pass, 0 fail, 0 undecided, 1 new" in passed.stdout
    failed = driving.run("compare", c, "--baseline", a, "--within", "3%", "--json")
    assert failed.returncode == 1, failed.stderr
    document = json.loads(failed.stdout)
    assert (document["passed"], document["within"], document["simulated"]) == (False, 0.03, False)
    assert {one["verdict"] for one in document["workloads"] if one["value"]} == {"fail"}
