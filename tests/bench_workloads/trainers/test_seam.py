"""One file per trainer: no other module names one, and the plan rejects what a trainer cannot do."""

import ast
from pathlib import Path

import pytest
import yaml

from bench_workloads.trainers import TRAINERS
from bench_workloads.trainers.adapter import Adapter, from_here
from sweep.inputs.yaml_lines import dump
from sweep.physics.catalogue import MODELS
from sweep.physics.profiles import PROFILES, profile_of
from sweep.planning.rules import broken_by_run
from sweep.plugins import TRAINER, WORKLOAD
from tests.support.made_plans import rows_of
from tests.support.made_records import made_run
from tests.support.paths import REPOSITORY
from tests.support.simulated import placed
from tests.support.trainers.layouts import run_of

NAMES = ("torchtitan", "nanotron", "picotron", "deepspeed", "megatron", "nemo")
ALLOWED = ("sweep/physics/", "bench_workloads/trainers/")
"""the tables of differences between trainers, and the adapters"""
READ = ("sweep/diagnose/", "sweep/foreign/")
"""these contain texts of trainers' logs and columns of results files, not how to run a trainer"""


def names_in_code(path):
    """Identifiers and whole strings; neither comments nor docstrings nor longer texts that mention a trainer."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Name | ast.Attribute | ast.alias):
            yield getattr(node, "id", None) or getattr(node, "attr", None) or node.name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_no_other_module_names_a_trainer():
    found = []
    for package in ("sweep", "analysis", "bench_workloads"):
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            name = str(path.relative_to(REPOSITORY))
            if name.startswith((*ALLOWED, *READ)):
                continue
            found += [f"{name}: {word}" for word in names_in_code(path) if word.lower().replace("-", "_") in NAMES]
    assert found == []


@pytest.mark.parametrize("name", sorted(TRAINERS))
def test_each_is_a_workload_of_the_same_name(name):
    adapter = TRAINER.find(name)
    assert isinstance(adapter, Adapter)
    assert adapter.workload.name == name
    assert WORKLOAD.find(name) is adapter.workload
    assert name in {*WORKLOAD.names()} & {*TRAINER.names()}


SIZES = {"num_layers": 6, "hidden_size": 512, "num_heads": 8, "num_kv_heads": 4, "intermediate_size": 1024}
REJECTED = yaml.safe_load(Path(__file__).with_name("rejected.yaml").read_text())


def planned(trainer, axes=None, shape=None):
    """(the runs, the reasons of what is rejected) of a grid with these keys, and with these of its model."""
    grid = {"workload": trainer, "models": {"m": {**SIZES, "vocab_size": 4096, **(shape or {})}}, "nodes": 1}
    grid |= {"sequence_length": 1024, "global_batch": "32Ki", "site": {"gpu": "h100", "gpus_per_node": 8}}
    rows = rows_of(dump({**grid, **(axes or {})}))
    return [row for row in rows if row["run_id"] is not None], [r for row in rows for r in row["reasons"] or ()]


@pytest.mark.parametrize("asked", REJECTED, ids=lambda asked: f"{asked['trainer']}: {asked['reason']}")
def test_the_plan_rejects_what_it_cannot_run(asked):
    runs, reasons = planned(asked["trainer"], asked.get("axes"), asked.get("shape"))
    assert runs == []
    assert any(asked["reason"] in reason for reason in reasons)


def test_learned_positions_may_be_as_many_as_the_tokens_of_a_sequence():
    assert planned("megatron", shape={"learned_positions": 1024})[0]


@pytest.mark.parametrize(
    ("trainer", "axes", "retained"),
    [("nanotron", {}, [3, 4]), ("picotron", {"params": {"model_name": "x"}}, [3, 4]), ("torchtitan", {}, [4])],
)
def test_one_micro_batch_less_than_stages_is_rejected_where_the_trainer_refuses_it(trainer, axes, retained):
    """nanotron asserts at least pp-1 (engine.py), picotron accepts any number; torch's 1F1B needs pp."""
    found = []
    for micro_batches in (2, 3, 4):
        keys = {"pp": 4, "global_batch": f"{2 * micro_batches}Ki", **axes}
        runs, _ = planned(trainer, keys, {"num_layers": 8})
        found += [run["grad_accum"] for run in runs if run["micro_batch_size"] == 1]
    assert found == retained


@pytest.mark.parametrize(
    ("nodes", "ep", "width", "fits"),
    [(2, 8, 0, False), (4, 2, 0, True), (16, 8, 0, True), (2, 8, 1, True), (2, 8, 2, False)],
)
def test_megatron_splits_experts_by_tp_too_by_default(nodes, ep, width, fits):
    """Expert-tensor width times ep*pp must divide the ranks (parallel_state.py)."""
    layout = {"dp": nodes // 2, "tp": 8, "pp": 2, "ep": ep, "etp": width}
    run = run_of("megatron", shape=MODELS["Mixtral-8x7B"].stated(), **layout)
    default = f"ep={ep} does not divide dp*cp = {nodes // 2}*1: each expert is split over tp=8 ranks"
    stated = f"ep*etp = {ep}*{width} does not divide dp*cp*tp = {nodes // 2}*1*8"
    found = [text.partition(", unless")[0] for text in broken_by_run(run, WORKLOAD.find("megatron"))]
    assert found == [stated if width else default] * (not fits)


def test_no_layout_of_any_script_is_rejected_by_memory():
    """Whether DeepSpeed's script recomputes its activations is unknown: PROFILES is correct for its states only."""
    text = """
workload: deepspeed
models: [8B]
nodes: 1
sequence_length: 8192
global_batch: 1536Ki
zero: 3
micro_batch_size: 3
params: {script: train.py}
site: {gpu: h100, gpus_per_node: 8}
"""
    (row,) = rows_of(text)
    assert row["reasons"] in (None, [])
    assert row["run_id"] is not None
    assert row["predicted_peak_bytes"] is None
    assert profile_of("deepspeed", {}) is None
    assert PROFILES["deepspeed"].name == "deepspeed"


def test_a_checkout_is_found_from_where_sweep_was_started(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = placed(made_run(params={"cp_kind": "x"}))
    assert from_here(run, {"root": "Megatron-LM"}).params == {"cp_kind": "x", "root": str(tmp_path / "Megatron-LM")}
    assert from_here(run, {"root": "/opt/Megatron-LM"}).params["root"] == "/opt/Megatron-LM"
    assert from_here(run, {}) is run
