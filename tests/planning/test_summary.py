"""A plan in numbers."""

import pyarrow as pa
import pytest

from sweep.planning.runs import Plan
from sweep.planning.summary import COMMONEST, summary
from tests.support.made_plans import BASE, SHAPE, plan_of


def test_summary_counts_every_candidate_once_per_cell():
    plan = plan_of(BASE.replace("nodes: [1]", "nodes: [1, 2]") + "tp: auto\npp: auto\nmicro_batch_size: auto\n")
    found = summary(plan)
    assert found["candidates"] == found["runs"] + found["rejected"] == plan.table.num_rows
    assert sum(cell["runs"] for cell in found["cells"]) == found["runs"] == len(plan.runs)
    assert sum(cell["rejected"] for cell in found["cells"]) == found["rejected"]
    spent = sum(p.nodes * p.predicted_s for p in plan.runs) / 3600
    assert found["predicted_node_hours"] == pytest.approx(spent, rel=0.05)


def test_at_most_ten_reasons_of_a_rule_are_shown():
    plan = plan_of(BASE + "tp: 1\nmicro_batch_size: {from: 1, to: 40, step: 1}\n")
    (batches,) = [entry for entry in summary(plan)["rejected_by_rule"] if entry["rule"] == "batch_equation"]
    assert batches["candidates"] > 20
    assert len(batches["such_as"]) == COMMONEST == 10


TWO_CELLS = BASE.replace("nodes: [1]", "nodes: [1, 2]") + "tp: [1, 2]\nmicro_batch_size: [1, 2]\n"


def test_each_cell_names_the_run_of_most_predicted_tokens_per_gpu():
    plan = plan_of(TWO_CELLS)
    rows = [row for row in plan.table.to_pylist() if row["status"] == "run"]
    for cell in summary(plan)["cells"]:
        mine = [row for row in rows if row["nodes"] == cell["nodes"]]
        best = min(mine, key=lambda row: row["predicted_step_s"] / row["global_batch_tokens"])
        found = cell["predicted_best"]
        assert found["run_id"] == best["run_id"] == min(mine, key=lambda row: row["position"])["run_id"]
        assert (found["tp"], found["micro_batch_size"]) == (best["tp"], best["micro_batch_size"])
        speed = best["global_batch_tokens"] / best["predicted_step_s"] / best["gpus"]
        assert found["tokens_per_second_per_gpu"] == pytest.approx(speed)
        assert found["step_s"] == best["predicted_step_s"]
        assert cell["gpus"] == 6 * cell["nodes"]
        hours = sum(row["nodes"] * row["predicted_s"] for row in mine) / 3600
        assert cell["predicted_node_hours"] == pytest.approx(hours, abs=5e-4)


def test_where_nothing_predicts_a_runs_time_it_is_assumed_and_the_summary_states_so():
    known, unknown = (summary(plan_of(TWO_CELLS.replace("h100", gpu))) for gpu in ("h100", "cpu"))
    assert known["prediction"].startswith("model of the step time")
    assert unknown["prediction"] == "60 s per run assumed"
    assert summary(plan_of(BASE))["runs"] == 1
    assert summary(plan_of(BASE))["prediction"] == "model of the step time, and 30 s to start each"
    assert unknown["predicted_node_hours"] == pytest.approx((4 * 1 + 4 * 2) * 60 / 3600)
    assert {cell["predicted_best"] for cell in unknown["cells"]} == {None}
    nothing = summary(plan_of(BASE + "constraints: ['tp > 1']\n"))
    assert nothing["prediction"] == "60 s per run assumed", "a grid without any run is a plan all the same"
    (cell,) = nothing["cells"]
    assert [cell[name] for name in ("runs", "rejected", "predicted_node_hours", "predicted_best")] == [0, 1, 0.0, None]


def test_a_candidate_counts_once_for_each_rule_that_rejects_it_the_commonest_rule_first():
    plan = plan_of(BASE + "tp: [1, 5, 7]\ntp_across_nodes: true\n")
    found = summary(plan)["rejected_by_rule"]
    assert [(entry["rule"], entry["candidates"]) for entry in found] == [
        ("gpu_equation", 2), ("heads_by_tp", 2), ("kv_heads_by_tp", 2),
    ]  # fmt: skip
    assert found[1]["such_as"] == [f"tp={tp} does not divide the 12 attention heads" for tp in (5, 7)]


def test_of_a_rules_reasons_the_commonest_are_shown_first():
    plan = plan_of(
        BASE + "tp: [5, 7]\nzero: [0, 1, 2]\nexclude: [{tp: 5, zero: 2}]\nconstraints: ['tp != 5 or zero < 1']\n"
    )
    found = {entry["rule"]: entry for entry in summary(plan)["rejected_by_rule"]}
    assert list(found)[-3:] == ["tp_within_node", "constraints[0]", "exclude[0]"], "3, 2 and 1 of them"
    assert found["heads_by_tp"]["such_as"] == [f"tp={tp} does not divide the 12 attention heads" for tp in (5, 7)]
    more = summary(plan_of(BASE + "tp: [5, 7]\ninclude: [{tp: 7, zero: [1, 2]}]\n"))["rejected_by_rule"]
    heads = next(entry for entry in more if entry["rule"] == "heads_by_tp")
    assert heads["candidates"] == 4
    assert heads["such_as"] == [f"tp={tp} does not divide the 12 attention heads" for tp in (7, 5)]


def test_node_hours_are_given_to_a_thousandth():
    """One run of an assumed minute on one node, and one on five: 0.0167 and 0.0833 node-hours."""
    found = summary(plan_of(BASE.replace("nodes: [1]", "nodes: [1, 5]").replace("h100", "cpu").replace("3072", "1920")))
    assert [cell["predicted_node_hours"] for cell in found["cells"]] == [0.017, 0.083]
    assert found["predicted_node_hours"] == 0.1


def test_the_best_of_a_cell_is_given_for_the_runs_with_a_prediction_only():
    plan = plan_of(TWO_CELLS)
    table = plan.table
    at = table.schema.get_field_index("predicted_step_s")
    first = table.column("position").to_pylist().index(0)
    cell = table.slice(first, 1).to_pylist()[0]
    seconds = [None if row == first else value for row, value in enumerate(table.column(at).to_pylist())]
    partly = Plan(plan.name, table.set_column(at, table.schema.field(at), pa.array(seconds, pa.float64())))
    (found,) = [entry for entry in summary(partly)["cells"] if entry["nodes"] == cell["nodes"]]
    mine = [row for row in partly.table.to_pylist() if row["status"] == "run" and row["nodes"] == cell["nodes"]]
    second = min((row for row in mine if row["run_id"] != cell["run_id"]), key=lambda row: row["position"])
    assert found["predicted_best"]["run_id"] == second["run_id"]


@pytest.mark.parametrize(("names", "listed"), [
    (["80B", "8B", "120B"], ["8B", "80B", "120B"]),
    (["m2-v10", "m2-v9", "m10-v1"], ["m2-v9", "m2-v10", "m10-v1"]),
    (["b", "a", "2a", "c"], ["2a", "a", "b", "c"]),
])  # fmt: skip
def test_names_are_listed_by_the_numbers_in_them(names, listed):
    models = "models: {" + ", ".join(f"{name}: {SHAPE}" for name in names) + "}"
    cells = summary(plan_of("\n".join([models, *BASE.splitlines()[1:]]), overrides=["nodes=[1,2]"]))["cells"]
    assert [(cell["model"], cell["nodes"]) for cell in cells] == [(name, nodes) for name in listed for nodes in (1, 2)]
