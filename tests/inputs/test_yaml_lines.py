"""Where a mistake in YAML is, and that one mistake hides no other."""

import pytest

from sweep.inputs.yaml_lines import load
from tests.support.refusals import mistakes_of


def test_text_that_is_no_yaml_is_reported_at_its_line() -> None:
    (mistake,) = mistakes_of(load, "name: x\nnodes: [1]\na: b: c\n", "grid.yaml")
    assert (mistake.file, mistake.line) == ("grid.yaml", 3)


@pytest.mark.parametrize("twice", ["a: 1\na: 2", "? [a]\n: 1"])
def test_after_a_key_that_is_refused_the_others_are_read(twice: str) -> None:
    document = load(f"{twice}\nb: 3\nb: 4\nc: 5\n", "grid.yaml")
    assert len(document.mistakes) == 2
    assert "'b'" in str(document.mistakes[1])
    assert (document.value["b"], document.value["c"]) == (3, 5)
