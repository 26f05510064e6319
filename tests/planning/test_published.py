"""General rules against what real trainers ran: published runs that worked, and recommended configurations.

Reads the folder that SWEEP_REFERENCE_DATA names; skipped where it is unset.
"""

import re
from collections import defaultdict

from benchmarks import published_rows
from sweep.inputs.yaml_lines import dump
from tests.support.made_plans import plan_of
from tests.support.published import RECOMMENDED, rows, table

LAYOUT = ("dp", "tp", "pp", "zero", "micro_batch_size", "grad_accum")


def recommended():
    return [row for row in rows("nemo_recommended_configs.csv") if (row["model"], row["size"]) in RECOMMENDED]


def plan_of_recommended(row):
    names = ("num_gpus", "seq_len", "tp_size", "pp_size", "cp_size", "ep_size", "mbs", "gbs")
    number = {name: int(float(row[name] or 1)) for name in names}
    per_node = 8
    return plan_of(
        dump(
            {
                "models": {"m": RECOMMENDED[row["model"], row["size"]].as_dict()},
                "nodes": number["num_gpus"] // per_node,
                "sequence_length": number["seq_len"],
                "global_batch": number["gbs"] * number["seq_len"],
                "tp": number["tp_size"],
                "pp": number["pp_size"],
                "cp": number["cp_size"],
                "ep": number["ep_size"],
                "micro_batch_size": number["mbs"],
                "site": {"gpu": "h100", "gpus_per_node": per_node},
            }
        )
    )


def test_no_recommended_configuration_is_rejected_but_the_one_that_breaks_the_gpu_equation():
    found = {}
    for i, row in enumerate(recommended()):
        if not plan_of_recommended(row).runs:
            found[i] = plan_of_recommended(row).table.to_pylist()[0]["reasons"]
    assert len(recommended()) >= 45
    (broken,) = found
    assert [recommended()[broken][k] for k in ("task", "model", "size")] == ["lora", "llama31", "405b"]
    assert found[broken] == ["gpu_equation: tp*pp*cp = 8*6*1 = 48 does not divide the 32 GPUs"]


def cells():
    """(model, nodes, tokens, sequence) -> the rows of it that name one of the playbook's shapes."""
    grouped = defaultdict(list)
    for row in rows("playbook_runs.csv"):
        grouped[row["model_label"], int(row["nodes"]), int(row["global_batch_tokens"]), int(row["seq_len"])].append(row)
    return grouped


def planned(model, nodes, tokens, sequence, found):
    axes = {name: sorted({int(row[name]) for row in found}) for name in ("tp", "pp", "micro_batch_size")}
    plan = plan_of(
        dump(
            {
                "models": [model],
                "nodes": nodes,
                "sequence_length": sequence,
                "global_batch": tokens,
                **axes,
                "zero": sorted({int(row["zero_stage"]) for row in found}),
                "tp_across_nodes": True,
                "site": {"gpu": "h100", "gpus_per_node": 8},
            }
        )
    )
    return {tuple(r[n] for n in LAYOUT): r["status"] for r in plan.table.to_pylist()}


def test_no_published_success_is_rejected_and_short_pipelines_are():
    successes = rejected_failures = failures = 0
    for (model, nodes, tokens, sequence), found in cells().items():
        status = planned(model, nodes, tokens, sequence, found)
        for row in found:
            layout = tuple(int(row["zero_stage" if name == "zero" else name]) for name in LAYOUT)
            if row["status"] == "success":
                successes += 1
                assert status[layout] == "run", row
            else:
                failures += 1
                rejected_failures += status.get(layout) != "run"
    assert successes > 900
    assert rejected_failures / failures > 0.1


def test_rows_that_vendors_published_are_grids_of_which_no_rule_rejects_one(capsys):
    assert published_rows.main([str(table(name)) for name in published_rows.TABLES]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    found = re.fullmatch(r"expressible: (\d+) of (\d+) \(\d+ %\), rejected: 0", last)
    assert found
    assert int(found[1]) >= 0.9 * int(found[2])
