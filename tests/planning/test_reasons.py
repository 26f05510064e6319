"""Why candidates are rejected: every reason with its numbers."""

from sweep.contract import Rule, Workload
from tests.support.made_plans import AXES, BASE, plan_of, reasons, rejected


def test_every_reason_is_stored_with_its_numbers():
    text = BASE + "tp: 5\npp: 17\ncp: 5\nep: 2\nmicro_batch_size: 7\nglobal_batch_tolerance: 0.5\n"
    text += "constraints: ['tp <= 4', 'nodes > 0']\ninclude: [{tp: 1, pp: 1, cp: 1, ep: 1}]\n"
    plan = plan_of(text)
    (row,) = rejected(plan)
    assert row["dp"] is row["grad_accum"] is row["global_batch_tokens"] is None
    assert row["reasons"] == [
        "gpu_equation: tp*pp*cp = 5*17*5 = 425 does not divide the 6 GPUs",
        "heads_by_tp: tp=5 does not divide the 12 attention heads",
        "kv_heads_by_tp: tp=5 and the 6 kv heads: neither divides the other",
        "layers_by_stages: pp=17 stages for 12 layers and 4 further blocks",
        "sequence_by_cp: cp=5 does not divide the sequence of 64",
        "ep_without_experts: ep=2, but small has no experts",
        "constraints[0]: tp <= 4 does not hold",
    ]


def test_a_batch_that_no_accumulation_reaches_names_the_nearest_and_the_tolerance():
    (reason,) = reasons(plan_of(BASE + "micro_batch_size: [7, 8]\nglobal_batch_tolerance: 0.02\n"))
    assert reason.startswith("batch_equation: ")
    assert reason.endswith("(tolerance 2 %)")


def test_reasons_that_need_a_whole_dp_are_absent_without_one():
    plan = plan_of(BASE + "tp: [1, 4]\nconstraints: ['dp < 1', 'grad_accum < 1']\n")
    by_tp = {row["tp"]: [reason.split(":")[0] for reason in row["reasons"]] for row in rejected(plan)}
    assert by_tp == {1: ["constraints[0]", "constraints[1]"], 4: ["gpu_equation", "kv_heads_by_tp"]}


def test_an_axis_that_the_workload_lacks_is_a_reason():
    narrow = Workload(name="narrow", main="x:y", axes=AXES - {"tp", "dtype"}, rules=())
    plan = plan_of(BASE + "tp: [1, 2]\n", narrow)
    assert reasons(plan) == {"tp_not_varied: the workload narrow cannot vary tp: 2 asked, only 1 possible"}


def test_a_workloads_rule_replaces_the_general_one():
    strict = Rule("kv_heads_by_tp", lambda c: c["num_kv_heads"] % c["tp"] != 0, "kv {num_kv_heads} tp {tp}")
    text = BASE.replace("nodes: [1]", "nodes: [2]") + "tp: [4, 12]\ntp_across_nodes: true\n"
    general = plan_of(text)
    own = plan_of(text, Workload(name="own", main="x:y", axes=AXES, rules=(strict,)))
    assert {row["tp"] for row in rejected(general) if any("kv" in reason for reason in row["reasons"])} == {4}
    assert {row["tp"] for row in rejected(own) if "kv_heads_by_tp: kv 6 tp 12" in row["reasons"]} == {12}


def test_derived_sizes_can_be_restricted():
    plan = plan_of(BASE + "tp: auto\ndp: [2, 6]\nmicro_batch_size: [1, 2]\ngrad_accum: [8]\n")
    assert {(p.run().layout.dp, p.run().layout.grad_accum) for p in plan.runs} == {(6, 8)}
    assert "dp_asked: dp=3 is not among the grid's dp" in reasons(plan)
