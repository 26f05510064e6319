"""The tool of `make mutants`: what it changes, and that its list of equivalents is about today's code."""

import ast

import pytest

from tests.support.mutants.__main__ import PACKAGES, Equivalents, sampled
from tests.support.mutants.changes import changes
from tests.support.mutants.running import TestsOfLines as Nearest
from tests.support.paths import REPOSITORY

SOURCE = """
LIMIT: int | None = 3


def bounded(a: int | None, *, b: list[int]) -> int | float:
    for x, y in zip(b, b, strict=True):
        if a is not None and x + 1 > a:
            return y
    return 4711
"""


def test_what_runs_is_changed_and_annotations_guards_and_large_numbers_are_not():
    made = {change.lines(SOURCE) for change in changes("f.py", SOURCE)}
    assert ("LIMIT: int | None = 3", "LIMIT: int | None = 4") in made
    assert ("if a is not None and x + 1 > a:", "if a is not None and x - 1 > a:") in made
    assert ("if a is not None and x + 1 > a:", "if a is not None and x + 1 >= a:") in made
    assert not [out for out, _ in made if out.startswith(("def", "return 4711"))]
    assert not [became for _, became in made if "strict=False" in became]
    assert len({change.apply(SOURCE) for change in changes("f.py", SOURCE)}) == len(list(changes("f.py", SOURCE)))
    for change in changes("f.py", SOURCE):
        ast.parse(change.apply(SOURCE))


def test_a_lines_tests_are_those_that_ran_it_and_all_where_only_its_import_did():
    seconds = {"slow": 2.0, "quick": 0.1, "other": 1.0}
    nearest = Nearest({"f.py": {2: {""}, 6: {"", "slow"}, 7: {"slow", "quick"}}}, seconds)
    assert nearest.of("f.py", 7, SOURCE) == ["quick", "slow"]
    assert nearest.of("f.py", 6, SOURCE) == ["slow"]
    assert nearest.of("f.py", 2, SOURCE) == ["quick", "other", "slow"]
    assert nearest.of("f.py", 9, SOURCE) == []


def test_a_seed_gives_the_same_sample_and_another_one_another():
    first = sampled("slurm", Equivalents(), 1, 10)
    assert first == sampled("slurm", Equivalents(), 1, 10) != sampled("slurm", Equivalents(), 2, 10)


@pytest.mark.long
def test_an_equivalent_change_is_one_of_todays_code_and_has_a_reason():
    rows = Equivalents().rows
    sources = {row["file"]: (REPOSITORY / row["file"]).read_text() for row in rows}
    all_changes = {file: list(changes(file, source)) for file, source in sources.items()}
    for row in rows:
        source = sources[row["file"]]
        texts = [line.strip() for line in source.splitlines()]
        near = [c for c in all_changes[row["file"]] if texts[c.line - 1] in row["line"]]
        assert (row["line"], row["becomes"]) in {c.lines(source) for c in near}, row
        assert row["reason"], row
        assert any(row["file"].startswith(place) for place, _ in PACKAGES.values()), row
