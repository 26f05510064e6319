"""General rules against what real trainers ran: published runs that worked, and recommended configurations.

Reads the folder that SWEEP_REFERENCE_DATA names; skipped where it is unset.
"""

import csv
import os
from collections import defaultdict
from pathlib import Path

import pytest

from sweep.contract import FREE, Workload
from sweep.inputs.load import parse_grid
from sweep.inputs.yaml_lines import dump
from sweep.physics.catalogue import MODELS
from sweep.physics.shapes import ModelShape
from sweep.planning.build import build
from sweep.planning.runs import to_table

REFERENCE = os.environ.get("SWEEP_REFERENCE_DATA")
pytestmark = pytest.mark.skipif(not REFERENCE, reason="SWEEP_REFERENCE_DATA is not set")
ANY = Workload(
    name="any",
    main="nowhere:main",
    axes=frozenset({*FREE, "dtype", "compile"}),
)
LAYOUT = ("dp", "tp", "pp", "zero", "micro_batch_size", "grad_accum")


def rows(name):
    with (Path(REFERENCE) / name).open() as file:
        return list(csv.DictReader(file))


def decoder(layers, hidden, heads, kv, width, vocab, experts=0, per_token=0):
    """Public configurations that the catalogue does not hold."""
    return ModelShape(
        num_layers=layers,
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=kv,
        intermediate_size=width,
        vocab_size=vocab,
        num_experts=experts,
        experts_per_token=per_token,
    )


RECOMMENDED = {
    ("llama3", "8b"): MODELS["Llama-3-8B"],
    ("llama3", "70b"): MODELS["Llama-3-70B"],
    ("llama31", "405b"): MODELS["Llama-3.1-405B"],
    ("mixtral", "8x7b"): MODELS["Mixtral-8x7B"],
    ("mixtral", "8x22b"): MODELS["Mixtral-8x22B"],
    ("gpt3", "175b"): decoder(96, 12288, 96, 96, 49152, 51200),
    ("nemotron3", "8b"): decoder(32, 4096, 32, 32, 16384, 256000),
    ("nemotron3", "22b"): decoder(40, 6144, 48, 48, 24576, 256000),
    ("nemotron4", "15b"): decoder(32, 6144, 48, 8, 24576, 256000),
    ("nemotron4", "340b"): decoder(96, 18432, 96, 8, 73728, 256000),
    ("deepseek", "v3"): decoder(61, 7168, 128, 128, 18432, 129280, 256, 8),
    ("llama4", "e16"): decoder(48, 5120, 40, 8, 8192, 202048, 16, 1),
    ("llama4", "e128"): decoder(48, 5120, 40, 8, 8192, 202048, 128, 1),
    ("qwen3", "30b_a3b"): decoder(48, 2048, 32, 4, 6144, 151936, 128, 8),
    ("qwen3", "235b_a22b"): decoder(94, 4096, 64, 4, 12288, 151936, 128, 8),
}


def recommended():
    return [row for row in rows("nemo_recommended_configs.csv") if (row["model"], row["size"]) in RECOMMENDED]


def plan_of_recommended(row):
    names = ("num_gpus", "seq_len", "tp_size", "pp_size", "cp_size", "ep_size", "mbs", "gbs")
    number = {name: int(float(row[name] or 1)) for name in names}
    per_node = 8
    grid = parse_grid(
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
        ),
        "row",
    )
    return build(grid, grid.site, ANY)


def test_no_recommended_configuration_is_rejected_but_the_one_that_breaks_the_gpu_equation():
    found = {}
    for i, row in enumerate(recommended()):
        if not plan_of_recommended(row).runs:
            found[i] = to_table(plan_of_recommended(row)).to_pylist()[0]["reasons"]
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


def planned(model, nodes, tokens, sequence, found, workload=ANY):
    axes = {name: sorted({int(row[name]) for row in found}) for name in ("tp", "pp", "micro_batch_size")}
    grid = parse_grid(
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
        ),
        "row",
    )
    names = [*LAYOUT, "status"]
    return {
        tuple(r[n] for n in LAYOUT): r["status"]
        for r in to_table(build(grid, grid.site, workload)).select(names).to_pylist()
    }


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
