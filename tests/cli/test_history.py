"""`sweep history`, and `sweep compare` of more than two."""

from __future__ import annotations

import json

from tests.support import driving
from tests.support.compared import results


def test_a_slower_third_is_named_and_drawn_and_fails_where_asked(tmp_path):
    files = [results(tmp_path / f"{name}.parquet", factor) for name, factor in (("a", 1), ("b", 1.001), ("c", 1.06))]
    shown = driving.run("history", *files, "--out", tmp_path / "history.png")
    assert shown.returncode == 0, shown.stderr
    assert "1B on 1: 2 -> 3: -5." in shown.stdout
    assert "1B on 1: 1 -> 3: -5." in shown.stdout
    assert (tmp_path / "history.png").stat().st_size > 10_000
    guard = driving.run("compare", *files, "--fail-if-slower", "3%", "--json")
    assert guard.returncode == 1, guard.stderr
    document = json.loads(guard.stdout)
    assert [(one["earlier"], one["later"]) for one in document["regressions"]] == [
        (1, 2),
        (0, 2),
    ]
    assert driving.run("history", *files[:2], "--fail-if-slower", "3%").returncode == 0
    alone = driving.run("history", files[0])
    assert (alone.returncode, alone.stdout) == (2, "")
    assert "B: this argument is missing" in alone.stderr
