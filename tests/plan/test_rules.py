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
        ("<2.12", None, True),
        ("==2.11.*", None, True),
        (">=3", None, True),
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


def broken(name, **columns):
    """Whether the general rule rejects a candidate of these sizes."""
    plain = {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "dp": 1, "num_heads": 12, "num_kv_heads": 6, "num_layers": 12}
    rule = next(rule for rule in GENERAL if rule.name == name)
    return bool(rule.broken(plain | {"grad_accum": 8, "sequence_length": 64, "num_experts": 0} | columns))


@pytest.mark.parametrize(("rule", "columns", "rejected"), [
    ("heads_by_tp", {"tp": 6}, False), ("heads_by_tp", {"tp": 5}, True), ("heads_by_tp", {"tp": 24}, True),
    ("kv_heads_by_tp", {"tp": 3}, False), ("kv_heads_by_tp", {"tp": 12}, False), ("kv_heads_by_tp", {"tp": 4}, True),
    ("layers_by_stages", {"pp": 12}, False), ("layers_by_stages", {"pp": 16}, False),
    ("layers_by_stages", {"pp": 17}, True),
    ("micro_batches_by_pp", {"pp": 9}, False), ("micro_batches_by_pp", {"pp": 10}, True),
    ("sequence_by_cp", {"cp": 16}, False), ("sequence_by_cp", {"cp": 3}, True),
    ("experts_by_ep", {"ep": 4, "num_experts": 8}, False), ("experts_by_ep", {"ep": 3, "num_experts": 8}, True),
    ("experts_by_ep", {"ep": 3}, False), ("experts_by_ep", {"ep": 1, "num_experts": 8}, False),
    ("ep_without_experts", {"ep": 2}, True), ("ep_without_experts", {"ep": 2, "num_experts": 8}, False),
    ("ep_without_experts", {}, False), ("ep_by_replicas", {"ep": 8, "dp": 2, "cp": 2, "tp": 2}, False),
    ("ep_by_replicas", {"ep": 8, "dp": 4}, True), ("ep_by_replicas", {"ep": 4, "dp": 8}, False),
])  # fmt: skip
def test_the_first_size_that_a_rule_rejects(rule, columns, rejected):
    assert broken(rule, **columns) is rejected
