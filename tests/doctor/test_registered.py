"""Checks that other packages register by an entry point."""

import pytest

from sweep.checks.check import Reading, Stated, Verdict, evaluate
from sweep.checks.node import node_checks
from sweep.errors import SweepError
from sweep.plugins import CHECK
from tests.support import driving

MODULE = """
from sweep.checks.check import Check
from sweep.checks.rules import at_least

LICENSES = Check(
    name="licenses", tier="node", reader="licenses_here:free", evaluate=at_least(1, "licenses"), remedy="ask"
)
NUMBER = 3
"""


def test_a_registered_check_is_part_of_its_tier_and_its_rule_counts_and_what_is_none_is_refused(tmp_path, monkeypatch):
    def install(attribute):
        folder = tmp_path / attribute
        driving.plug_in(folder, "licenses", f"licenses_here:{attribute}", MODULE, group="sweep.checks")
        monkeypatch.syspath_prepend(str(folder))

    install("NUMBER")
    with pytest.raises(SweepError, match=r"'licenses' is a int, not a sweep\.checks"):
        CHECK.every()
    install("LICENSES")
    (check,) = CHECK.every()
    assert check in node_checks(CHECK.every(), "cpu")
    assert evaluate(check, Reading(value=0), Stated()).verdict is Verdict.BELOW_FLOOR
    assert evaluate(check, Reading(value=2), Stated()).verdict is Verdict.OK
