"""The real torchtitan 0.3 through `sweep launch`, on CPU: a dense and an expert model, 2 ranks, gloo.

SWEEP_TORCHTITAN_PYTHON names an interpreter (`test_validated.py` says how to make it); without it the test is skipped.
`torchtitan_on_cpu/` lists what is replaced. Not run here: pipelines, float8 and compiled layers, DeepEP, HybridEP and
CUDA graphs, which need a GPU; `spmd_backend: spmd_types`, which needs a torch after 2.13.
"""

import json

import pytest

from tests.support import driving
from tests.support.trainers.external import SCRIPTS, python_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
SIZES = "num_layers: 2, hidden_size: 64, num_heads: 4, num_kv_heads: 2, intermediate_size: 128, vocab_size: 512"
EXPERTS = "num_experts: 4, experts_per_token: 2, moe_intermediate_size: 64"
GRID = """\
name: torchtitan
workload: torchtitan
models: {{tiny: {{{sizes}}}}}
nodes: 1
sequence_length: 64
global_batch: 256
zero: 3
micro_batch_size: 2
warmup_iterations: 1
params: {{python: {python}, spmd_backend: partial_dtensor{params}}}
env: {{PYTHONPATH: {replacements}, OMP_NUM_THREADS: "1"}}
site: {{gpu: cpu, gpus_per_node: 2{site}}}
{more}
"""


def grid_of(more, sizes=SIZES, params="", site=""):
    own = {"python": python_of("SWEEP_TORCHTITAN_PYTHON"), "replacements": SCRIPTS / "torchtitan_on_cpu"}
    return GRID.format(sizes=sizes, params=params, site=site, more=more, **own)


@pytest.mark.parametrize(("sizes", "ep", "runs"), [(SIZES, 1, 1), (f"{SIZES}, {EXPERTS}", "[1, 2]", 4)])
def test_it_trains(sizes, ep, runs, tmp_path):
    grid = grid_of(f"ep: {ep}\niterations: 5\nrouting: [natural, balanced]\n", sizes)
    done = driving.launched(tmp_path, grid, "--json", cwd=tmp_path, timeout=800)
    counts = json.loads(done.stdout)["counts"]
    assert set(counts) == {"ok"}
    assert counts["ok"] >= runs, "more where the best are measured again"
    for record in driving.assert_each_run_measured_once(tmp_path / "s"):
        effective = json.loads(record["effective_json"])
        assert (effective["dp"], effective["ep"], effective["grad_accum"]) == (2, record["ep"], 1)
        assert effective.get("routing", "natural") == (record["routing"] or "natural")
        assert (effective.get("dispatcher") == "alltoall") == ("experts" in sizes)
        assert len(record["step_times_s"]) == 5
        assert all(5 < loss < 8 for loss in record["losses"])
        assert record["peak_memory_bytes"] is None  # it prints -0.00GiB
        assert not record["suspect"]


def test_its_own_checkpoints_are_measured_and_removed(tmp_path):
    """But for async_pinned, which fails without an accelerator: no measurement."""
    directory, checkpoints = tmp_path / "s", tmp_path / "checkpoints"
    checkpoints.mkdir()
    kinds = ", checkpoint: [sync, async, async_pinned]"
    grid = grid_of("iterations: 3\nremeasure: 0\n", params=kinds, site=f", checkpoint_dir: {checkpoints}")
    driving.launch(tmp_path, grid, cwd=tmp_path, timeout=800)
    records = {json.loads(one["params_json"])["checkpoint"]: one for one in driving.records_of(directory)}
    pinned = records.pop("async_pinned")
    assert pinned["outcome"] == "python_exception"
    assert "requires that the current accelerator is available" in pinned["evidence"]
    assert sorted(records) == ["async", "sync"]
    for kind, record in records.items():
        assert record["outcome"] == "ok", record["message"]
        assert json.loads(record["effective_json"])["checkpoint"] == kind
        assert record["checkpoint_stall_s"] > 0
        assert record["checkpoint_durable_s"] > 0
        assert kind != "sync" or record["checkpoint_slowdown"] == 0
        state = 12 * 164_160  # weights and both moments
        assert state < json.loads(record["extra_json"])["checkpoint_bytes"] < 1.2 * state
        assert len(record["step_times_s"]) == 3
        assert not record["suspect"], record["notes"]
    assert list(checkpoints.iterdir()) == []
