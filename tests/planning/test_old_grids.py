"""Grids of before the further axes of 2026 (precision recipes, etp, dispatcher, …) keep their runs and reasons.

The golden was made by the commit before those axes (006c3e21). It is on CPUs, whose memory and speed are not predicted:
a better prediction changes no digest. Updated by ``SWEEP_UPDATE_GOLDENS=1 pytest tests/planning/test_old_grids.py``.
"""

import hashlib
import json
import os
from pathlib import Path

import pytest

from sweep.inputs.load import load_grid, parse_grid
from sweep.inputs.site import Site
from sweep.planning.build import build
from tests.support.paths import REPOSITORY

GOLDEN = Path(__file__).parent / "golden" / "old_grids.json"
EXAMPLES = sorted((REPOSITORY / "examples").glob("*.yaml"))
COLUMNS = [
    "model", "nodes", "gpus", "sequence_length", "dp", "tp", "pp", "cp", "ep", "zero", "micro_batch_size", "grad_accum",
    "recompute", "pp_schedule", "dtype", "params", "env", "compile", "repeat", "run_id", "run_json", "reasons",
]  # fmt: skip
COMMON = "\nnodes: [1, 2]\nsequence_length: 4096\nglobal_batch: 1Mi\nmicro_batch_size: [1, 2]\n"
GRIDS = {
    "schedules": "models: [1B, Qwen3-30B-A3B]\ntp: [1, 2]\npp: auto\nep: [1, 2]\npp_schedule: auto\n"
    "recompute: auto\nzero: [0, 1]",
    "megatron": "workload: megatron\nmodels: [8B, Qwen3-30B-A3B]\ntp: auto\npp: [1, 4]\nep: [1, 4, 8]\n"
    "pp_schedule: auto\nrecompute: auto\ndtype: [bf16, fp16]\nzero: [0, 1]",
    "torchtitan": "workload: torchtitan\nmodels: [Llama-3-8B]\ntp: auto\npp: [1, 4]\npp_schedule: auto\n"
    "compile: auto\nzero: auto",
    "nemo": "workload: nemo\nmodels: [Llama-3-8B]\ntp: auto\npp: [1, 4]\ncp: [1, 2]\nrecompute: auto\nzero: [0, 1]",
    "points": "models: [1B]\nzero: [0, 1]\npp: [1, 2]\npp_schedule: [gpipe, 1f1b]\nenv: {NCCL_DEBUG: [WARN, INFO]}\n"
    "params: {attention: [flash, cudnn]}\nrepeats: 2\nconstraints: [tp * pp <= 16]\n"
    "include: [{tp: 2, pp_schedule: 1f1b}]\nexclude: [{zero: 1, pp: 2}]",
}


def _plan(name: str):
    site = Site(gpu="cpu", gpus_per_node=8)
    if name in GRIDS:
        return build(parse_grid(GRIDS[name] + COMMON, "grid.yaml"), site)
    return build(load_grid(REPOSITORY / "examples" / name, ["site=null"]), site)


def _with_rules(row: dict[str, object]) -> dict[str, object]:
    """The candidate with the names of the rules that reject it, whose wording may change."""
    return {**row, "reasons": [reason.partition(":")[0] for reason in row["reasons"]]}


def _digests(name: str) -> dict[str, object]:
    rows = [json.dumps(_with_rules(row), sort_keys=True) for row in _plan(name).table.select(COLUMNS).to_pylist()]
    runs = sorted(row for row in rows if '"reasons": []' in row)
    rejected = sorted(set(rows) - set(runs))
    texts = {"runs": runs, "rejected": rejected}
    return {key: [len(of), hashlib.sha256("\n".join(of).encode()).hexdigest()[:16]] for key, of in texts.items()}


@pytest.mark.parametrize("name", [*GRIDS, *(file.name for file in EXAMPLES)])
def test_runs_and_reasons_are_those_of_before(name):
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    found = _digests(name)
    if os.environ.get("SWEEP_UPDATE_GOLDENS"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(json.dumps({**golden, name: found}, indent=1, sort_keys=True) + "\n")
    elif name not in golden:
        pytest.skip("an example of after the golden")
    else:
        assert found == golden[name]
