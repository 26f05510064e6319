"""The texts that a rule's pattern needs, by which its lines are found: none is forgotten, each is rare enough."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweep.diagnose.model import LineRule, literals
from sweep.diagnose.scan import RULES, plain


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_line_that_a_rule_matches_holds_a_text_by_which_it_is_found(rule: LineRule) -> None:
    """Of three letters at least: a pattern without one needs a longer literal, or each line of a log is tried."""
    assert min(map(len, rule.keys)) >= 3

    @settings(max_examples=10, suppress_health_check=list(HealthCheck), deadline=None)
    @given(st.from_regex(rule.pattern))
    def holds(line: str) -> None:
        line = plain(line)
        assert rule.pattern.search(line) is None or any(key in line.lower() for key in rule.keys)

    holds()


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("A|b", ("a", "b")),
        (r"one\d+three", ("three",)),
        (r"lost (?:peer|rank)s?\b", ("lost peer", "lost rank")),
        (r"(?:GPU|device).{0,40}out of memory", ("out of memory",)),
        (r"^(?!.*never).*(?:the )?end$", ("end",)),
        ("x[ _-]y", ("x y", "x-y", "x_y")),
        ("(?:again )+", ("again ",)),
        ("peers? lost", ("peer lost", "peers lost")),
        ("(?:again )*", ()),
        (r"free\(\)|\w", ()),
        ("ab|a.b", ("a",)),
        ("abc|xbc|b", ("b",)),
        (r"Error\d+host", ("host",)),
        ("[abcd][abcd][abcd] end", ("a end", "b end", "c end", "d end")),
        ("[abcdefghijkl] end", tuple(f"{letter} end" for letter in "abcdefghijkl")),  # twelve
        ("[abcdefghijklm] end", (" end",)),
    ],
)
def test_texts_of_a_pattern(pattern: str, texts: tuple[str, ...]) -> None:
    assert literals(pattern) == texts
