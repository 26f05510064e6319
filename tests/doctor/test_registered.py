"""Checks that other packages register by an entry point."""

import pytest

from sweep.checks.check import Check, Reading, Stated, Verdict, evaluate
from sweep.checks.node import node_checks
from sweep.errors import SweepError
from sweep.plugins import CHECK
from tests.support import driving

MODULE = """
from sweep.checks.check import Check
from sweep.checks.rules import at_least

LICENSES = Check(
    name="licenses", tier="node", reader="licenses_here:free", rule_, remedy="ask"
)
NUMBER = 3


def free():
    return 0
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A function that installs a package with this entry point."""

    def install(attribute):
        text = MODULE.replace("rule_", 'evaluate=at_least(1, "licenses")')
        driving.plug_in(tmp_path, "licenses", f"licenses_here:{attribute}", text, group="sweep.checks")
        monkeypatch.syspath_prepend(str(tmp_path))

    return install


def test_a_registered_check_is_part_of_its_tier_and_its_rule_counts(package):
    package("LICENSES")
    (check,) = CHECK.every()
    assert isinstance(check, Check)
    assert check in node_checks(CHECK.every(), "cpu")
    assert evaluate(check, Reading(value=0), Stated()).verdict is Verdict.BELOW_FLOOR
    assert evaluate(check, Reading(value=2), Stated()).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("attribute", "words"), [("NUMBER", "is a int, not a sweep.checks"), ("NONE", "cannot be loaded")]
)
def test_what_is_no_check_is_refused_with_its_name(package, attribute, words):
    package(attribute)
    with pytest.raises(SweepError, match=f"'licenses' {words}"):
        CHECK.every()
