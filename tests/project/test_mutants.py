"""The list of equivalents of `make mutants` is about today's code."""

from tests.support.mutants.__main__ import PACKAGES, Equivalents
from tests.support.mutants.changes import changes
from tests.support.paths import REPOSITORY


def test_an_equivalent_change_is_one_of_todays_code_and_has_a_reason():
    rows = Equivalents().rows
    sources = {row["file"]: (REPOSITORY / row["file"]).read_text() for row in rows}
    all_changes = {file: list(changes(file, source)) for file, source in sources.items()}
    stale = []
    for row in rows:
        source = sources[row["file"]]
        texts = [line.strip() for line in source.splitlines()]
        near = [c for c in all_changes[row["file"]] if texts[c.line - 1] in row["line"]]
        if (row["line"], row["becomes"]) not in {c.lines(source) for c in near}:
            stale.append((row["file"], row["becomes"]))
        assert row["reason"], row
        assert any(row["file"].startswith(place) for place, _ in PACKAGES.values()), row
    assert not stale
