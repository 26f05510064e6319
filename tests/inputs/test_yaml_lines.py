"""Where a mistake in YAML is, and that one mistake hides no other."""

import pytest

from sweep.inputs.yaml_lines import load
from tests.support.refusals import mistakes_of


def test_text_that_is_no_yaml_is_reported_at_its_line() -> None:
    for line in ("a: b: c", "a: \0", "a: \x07"):
        (mistake,) = mistakes_of(load, f"name: x\nnodes: [1]\n{line}\n", "grid.yaml")
        assert (mistake.file, mistake.line) == ("grid.yaml", 3)


def test_a_text_that_no_file_can_hold_is_reported_at_its_line() -> None:
    document = load('a: 1\nb: "x\\ud800"\nc: "x\\0"\nd: "\\U0001F600"\n', "grid.yaml")
    assert [mistake.line for mistake in document.mistakes] == [2, 3]
    assert document.value == {"a": 1, "b": "x", "c": "x", "d": "\U0001f600"}


@pytest.mark.parametrize("twice", ["a: 1\na: 2", "? [a]\n: 1"])
def test_after_a_key_that_is_refused_the_others_are_read(twice: str) -> None:
    document = load(f"{twice}\nb: 3\nb: 4\nc: 5\n", "grid.yaml")
    assert len(document.mistakes) == 2
    assert "'b'" in str(document.mistakes[1])
    assert (document.value["b"], document.value["c"]) == (3, 5)
