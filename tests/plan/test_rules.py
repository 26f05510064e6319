"""Rules of torch versions."""

import pytest

from sweep.contract import Rule
from sweep.plan.rules import GENERAL, applies


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


def test_ep_may_span_data_context_and_tensor_ranks():
    """dp*cp*tp ranks share a stage's tokens: ep=8 over dp=2, cp=2 and tp=2 is legal, ep=3 is not."""
    (rule,) = [rule for rule in GENERAL if rule.name == "ep_by_replicas"]
    columns = {"dp": 2, "cp": 2, "tp": 2}
    assert not rule.broken({**columns, "ep": 8})
    assert rule.broken({**columns, "ep": 3})
    assert rule.broken({**columns, "ep": 16})
