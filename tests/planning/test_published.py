"""General rules against what real trainers ran: published runs that worked, and recommended configurations.

Reads the folder that SWEEP_REFERENCE_DATA names; skipped where it is unset.
"""

import re
from collections import defaultdict

from benchmarks import published_rows
from sweep.inputs.yaml_lines import dump
from tests.support.made_plans import plan_of
from tests.support.published import rows, table

LAYOUT = ("dp", "tp", "pp", "zero", "micro_batch_size", "grad_accum")


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
