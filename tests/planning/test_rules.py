"""Rules of torch versions."""

from dataclasses import replace

import numpy as np
import pytest

from sweep.contract import Rule
from sweep.physics.catalogue import MODELS
from sweep.planning.rules import GENERAL, applies, broken_by_run
from tests.support.made_plans import ANY
from tests.support.made_records import made_run


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


def broken(name, **columns):
    """Whether the general rule rejects a candidate of these sizes."""
    plain = {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "dp": 1, "num_heads": 12, "num_kv_heads": 6, "num_layers": 12}
    rule = next(rule for rule in GENERAL if rule.name == name)
    with np.errstate(all="raise"):
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
    ("etp_by_replicas", {"etp": 0, "ep": 2, "dp": 3}, False), ("etp_by_replicas", {"etp": 2, "ep": 2, "dp": 6}, True),
    ("etp_by_replicas", {"etp": 2, "ep": 2, "dp": 2, "cp": 2}, False),
    ("etp_by_replicas", {"etp": 1, "ep": 2, "dp": 3}, True), ("etp_by_replicas", {"etp": 1, "ep": 2, "dp": 2}, False),
    ("etp_by_replicas", {"etp": 4, "ep": 2, "tp": 4, "dp": 2}, False),
    ("experts_by_etp", {"etp": 0, "moe_intermediate_size": 6}, False),
    ("experts_by_etp", {"etp": 3, "moe_intermediate_size": 6}, False),
    ("experts_by_etp", {"etp": 4, "moe_intermediate_size": 6}, True),
    ("virtual_stages_by_schedule", {"virtual_stages": 1, "pp_schedule": "1f1b"}, False),
    ("virtual_stages_by_schedule", {"virtual_stages": 2, "pp_schedule": "1f1b"}, True),
    ("virtual_stages_by_schedule", {"virtual_stages": 2, "pp_schedule": "interleaved_1f1b"}, False),
    ("recompute_layers_by_stages", {"recompute_layers": 0, "pp": 2}, False),
    ("recompute_layers_by_stages", {"recompute_layers": 6, "pp": 2}, False),
    ("recompute_layers_by_stages", {"recompute_layers": 7, "pp": 2}, True),
    ("recompute_layers_by_stages", {"recompute_layers": 11}, False),
    ("recompute_layers_by_stages", {"recompute_layers": 12}, True),
])  # fmt: skip
def test_the_first_size_that_a_rule_rejects(rule, columns, rejected):
    assert broken(rule, **columns) is rejected


@pytest.mark.parametrize(("run", "reasons"), [
    ({"dp": 2}, []),
    ({"dp": 1, "tp": 2, "pp": 2, "gpus_per_node": 4}, []),
    ({"dp": 1, "tp": 2, "pp": 2, "gpus_per_node": 6}, ["tp*pp*cp = 2*2*1 = 4 does not divide the 6 GPUs"]),
    ({"dp": 1, "pp": 3, "gpus_per_node": 3, "grad_accum": 1}, ["1 micro-batches"]),
    ({"dp": 1, "tp": 3, "gpus_per_node": 3}, ["tp=3 does not divide", "neither divides the other"]),
])  # fmt: skip
def test_a_run_that_was_measured_elsewhere_is_checked_by_the_rules_of_a_plan(run, reasons):
    found = broken_by_run(made_run(**run, shape=MODELS["tiny-1M"].as_dict()), ANY)
    assert len(found) == len(reasons)
    assert all(wanted in reason for wanted, reason in zip(reasons, found, strict=True)), found


@pytest.mark.parametrize(("pp", "reasons"), [(1, []), (2, ["gpipe does not work here"])])
def test_a_schedule_without_a_pipeline_breaks_no_rule_of_schedules(pp, reasons):
    rule = Rule("no_gpipe", lambda c: np.asarray(c["pp_schedule"]) == "gpipe", "{pp_schedule} does not work here")
    rules = (rule, Rule("no_window", lambda c: c["window"] != 0, "a window of {window}"))
    run = made_run(dp=1, pp=pp, gpus_per_node=pp, pp_schedule="gpipe", shape=MODELS["tiny-1M"].stated())
    assert broken_by_run(run, replace(ANY, rules=rules)) == reasons
