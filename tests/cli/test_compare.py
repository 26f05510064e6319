"""`sweep compare` as a guard in CI."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from tests.support import driving
from tests.support.compared import results


def test_the_command_guards_a_performance(tmp_path):
    old, new = results(tmp_path / "old.parquet", 1.0), results(tmp_path / "new.parquet", 1.06)
    same = driving.run("compare", old, old, "--fail-if-slower", "3%")
    assert same.returncode == 0, same.stderr
    assert "0 changed" in same.stdout
    slower = driving.run("compare", old, new, "--fail-if-slower", "3%", "--json")
    assert slower.returncode == 1, slower.stderr
    document = json.loads(slower.stdout)
    assert (document["failed"], document["slower"]) == (True, [["1B", 1]])
    assert document["cells"][0]["typical"]["change"] == pytest.approx(1 / 1.06 - 1, abs=0.002)
    shown = driving.run("compare", old, new)
    assert shown.returncode == 0, "without the option a comparison is no failure"
    assert "1 worse" in shown.stdout
    assert driving.run("compare", old, new, "--fail-if-slower", "lots").returncode == 2
    assert driving.run("compare", old, tmp_path / "none").returncode == 2


def test_a_run_that_was_cancelled_is_listed_apart_from_those_that_fail(tmp_path):
    old, new = results(tmp_path / "old.parquet", 1.0), results(tmp_path / "new.parquet", 1.0)
    rows = pd.read_parquet(new)
    rows.loc[0, ["outcome", "message"]] = ["cancelled", "by the user"]
    rows.to_parquet(new)
    done = driving.run("compare", old, new)
    assert done.returncode == 0, done.stderr
    assert "fail in B" not in done.stdout
    assert "stopped in B before they were measured and worked in A: 1 configuration:" in done.stdout
