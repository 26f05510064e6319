"""What a plan leaves out by prediction alone: runs that would be ended, and runs that have no chance to be the best."""

import re
from collections import Counter

import pytest

from sweep.inputs.load import load_grid
from sweep.planning.build import build
from tests.support import published
from tests.support.made_plans import plan_of
from tests.support.paths import REPOSITORY

SITE = "site: {gpu: h100, gpus_per_node: 8}\n"
WIDE = "models: [70B]\nnodes: [64]\nsequence_length: 4096\nglobal_batch: 4Mi\ntp: auto\npp: auto\nzero: auto\n"
LONG = "workload: nanotron\nmicro_batch_size: auto\n" + WIDE + SITE
SMALL = (
    "workload: megatron\nmodels: [1B]\nnodes: [4]\nsequence_length: 4096\nglobal_batch: 1Mi\ntp: auto\npp: [1, 2, 4]\n"
    "zero: [0, 1]\nmicro_batch_size: [1, 2, 4, 8]\n" + SITE
)


def planned(text, *more):
    return plan_of(text + "".join(f"{line}\n" for line in more), None)


def left_out(plan):
    """Rule -> candidates that nothing else rejects."""
    rows = plan.table.to_pylist()
    alone = [row["reasons"][0].partition(":")[0] for row in rows if len(row["reasons"] or ()) == 1]
    return {rule: count for rule, count in Counter(alone).items() if rule in ("max_run_time", "no_chance")}


def test_runs_predicted_beyond_their_time_limit_are_left_out_and_said_so():
    plan = planned(LONG)
    assert all(run.predicted_s <= 900 for run in plan.runs)
    assert left_out(plan)["max_run_time"] == 21
    reasons = [reason for row in plan.table.to_pylist() for reason in row["reasons"] if "max_run_time" in reason]
    stated = r"max_run_time: would be ended after 900 s: predicted to take ([1-9][\d,]+) s \("
    shown = [re.match(stated, reason)[1].replace(",", "") for reason in reasons]
    assert max(len(text.rstrip("0")) for text in shown) == 2, "of a prediction two digits"
    longer = planned(LONG, "max_run_time: 12h")
    assert "max_run_time" not in left_out(longer)
    assert {run.run_id for run in plan.runs} < {run.run_id for run in longer.runs}


def test_guided_leaves_out_what_has_no_chance_by_its_time_per_token_and_keeps_the_fastest():
    text = SMALL.replace("4, 8]", "4, 12]") + "global_batch_tolerance: 0.5\n"
    every, plan = planned(text, "strategy: exhaustive"), planned(text)
    names = ("tp", "pp", "zero", "micro_batch_size")
    rows = [row for row in every.table.to_pylist() if row["status"] == "run"]
    assert len({row["global_batch_tokens"] for row in rows}) > 1
    costs = {tuple(row[name] for name in names): row["predicted_step_s"] / row["global_batch_tokens"] for row in rows}
    fourth = sorted(costs.values())[3]
    assert left_out(every) == {}
    assert left_out(plan) == {"no_chance": len(every.runs) - len(plan.runs)}
    assert len(plan.runs) < 0.9 * len(every.runs)
    assert every.runs[:4] == plan.runs[:4]
    for row in plan.table.to_pylist():
        if [reason.partition(":")[0] for reason in row["reasons"]] == ["no_chance"]:
            slower = float(re.search(r"predicted ([\d.]+) times slower", row["reasons"][0])[1])
            assert slower == pytest.approx(costs[tuple(row[name] for name in names)] / fourth, rel=0.05)
            assert slower > 1.3


def test_no_cell_is_left_without_a_run_by_its_predicted_time():
    plan = planned(LONG, "max_run_time: 60s")
    assert len(plan.runs) == 4
    assert plan.runs == planned(LONG, "max_run_time: 12h").runs[:4]


@pytest.mark.parametrize("text", [LONG, SMALL])
def test_include_brings_one_back(text):
    plan = planned(text)
    rules = ("max_run_time", "no_chance")
    row = next(r for r in plan.table.to_pylist() if r["reasons"] and r["reasons"][0].partition(":")[0] in rules)
    names = ("tp", "pp", "zero", "micro_batch_size")
    more = planned(text, f"include: [{{{', '.join(f'{name}: {row[name]}' for name in names)}}}]")
    (new,) = {run.run_id for run in more.runs} - {run.run_id for run in plan.runs}
    layout = more.runs[[run.run_id for run in more.runs].index(new)].run().layout
    assert [getattr(layout, name) for name in names] == [row[name] for name in names]


@pytest.mark.parametrize("change", [("gpu: h100", "gpu: cpu"), ("workload: megatron", "workload: simulated")])
def test_what_is_not_predicted_is_not_left_out(change):
    assert left_out(planned(SMALL.replace(*change))) == {}


def test_the_published_best_of_each_cell_is_kept():
    """Of the playbook's grid with its trainer: a fifth of the runs is left out, and no cell loses its winner."""
    grid = load_grid(REPOSITORY / "examples/ultrascale.yaml", ["workload=nanotron", "max_run_time=30d"])
    rows = build(grid, grid.site).table.to_pylist()
    names = ("model", "nodes", "dp", "tp", "pp", "grad_accum", "micro_batch_size", "zero")
    chances = {tuple(str(row[name]) for name in names): row["reasons"] for row in rows}
    best = [
        tuple(row[name.replace("zero", "zero_stage").replace("model", "model_label")] for name in names)
        for row in published.rows("playbook_heatmap_best.csv")
    ]
    assert [one for one in best if any("no_chance" in reason for reason in chances.get(one, ()))] == []
    assert sum(one in chances for one in best) >= 14
    runs = sum(not row["reasons"] for row in rows)
    lost = sum(row["reasons"][0].startswith("no_chance") for row in rows if row["reasons"])
    assert lost > 0.1 * (runs + lost)
