"""A plan in numbers."""

import pytest

from sweep.plan.runs import to_table
from sweep.plan.summary import COMMONEST, summary
from tests.support.made_plans import BASE, plan_of


def test_summary_counts_every_candidate_once_per_cell():
    plan = plan_of(BASE.replace("nodes: [1]", "nodes: [1, 2]") + "tp: auto\npp: auto\nmicro_batch_size: auto\n")
    found = summary(plan)
    assert found["candidates"] == found["runs"] + found["rejected"] == to_table(plan).num_rows
    assert sum(cell["runs"] for cell in found["cells"]) == found["runs"] == len(plan.runs)
    assert sum(cell["rejected"] for cell in found["cells"]) == found["rejected"]
    spent = sum(p.nodes * p.predicted_s for p in plan.runs) / 3600
    assert found["predicted_node_hours"] == pytest.approx(spent, rel=0.05)


def test_a_grid_without_any_run_is_a_plan_all_the_same():
    plan = plan_of(BASE + "constraints: ['tp > 1']\n")
    assert plan.runs == ()
    assert summary(plan)["cells"] == [
        {
            "model": "small",
            "nodes": 1,
            "gpus": 6,
            "runs": 0,
            "rejected": 1,
            "predicted_node_hours": 0.0,
            "predicted_best": None,
        }
    ]


def test_at_most_ten_reasons_of_a_rule_are_shown():
    plan = plan_of(BASE + "tp: 1\nmicro_batch_size: {from: 1, to: 40, step: 1}\n")
    (batches,) = [entry for entry in summary(plan)["rejected_by_rule"] if entry["rule"] == "batch_equation"]
    assert batches["candidates"] > 20
    assert len(batches["such_as"]) == COMMONEST == 10
