"""Rules of torch versions."""

import pytest

from sweep.contract import Rule
from sweep.plan.rules import applies


@pytest.mark.parametrize(
    ("specifier", "version", "holds"),
    [
        ("", None, True),
        ("", "2.13.0", True),
        (">=2.11", "2.13.0", True),
        (">=2.11", "2.10", False),
        (">=2.11", None, True),
        ("<2.11", None, False),
        ("<2.11", "2.9.1+cu126", True),
        ("<2.14", None, True),
        (">=2.13", "2.13.0a0+git123", False),
    ],
)
def test_rules_about_torch_versions(specifier, version, holds):
    assert applies(Rule("r", lambda c: True, "why", specifier), version) is holds
