"""Our own workloads declare what `sweep.contract` says."""

import os
import random
import subprocess
import sys
from dataclasses import asdict

import numpy as np
import pytest

from bench_workloads import WORKLOADS
from sweep.physics.catalogue import MODELS
from sweep.plugins import WORKLOAD
from tests.support.example_runs import example_run

PARAMS = {"transformer": {"threads": 1, "count_flops": False}, "simulated": {"step_s": 0.01}}
"""small enough for a test"""
ANY = {bool: (False, True), int: (1, 2, 3, 4, 8)}
HEAVY = ("torch", "pandas", "matplotlib")
"""a declaration is read by every `sweep` command: it must not import these"""
DECLARE = """
import importlib, os, sys
from sweep.plugins import WORKLOAD
preload = WORKLOAD.find(sys.argv[1]).preload
print(*(name for name in sys.argv[2:] if name in sys.modules))
for name in preload:
    importlib.import_module(name)
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_a_declaration_imports_nothing_heavy_and_ranks_can_be_forked_from_what_it_preloads(name):
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", DECLARE, name, *HEAVY]
    heavy, threads = subprocess.check_output(command, env=environment, text=True).splitlines()
    assert (heavy, threads) == ("", "1")


def drawn(workload, chance):
    """Columns that a workload's rules see: of a small run, with any value of each axis that it can vary."""
    run, model = example_run(workload, PARAMS.get(workload.name, {})), chance.choice(("tiny-1M", "tiny-moe"))
    facts = ("nodes", "gpus", "gpus_per_node", "sequence_length", "global_batch_tokens", "dtype", "compile")
    row = {**asdict(run.layout), **{name: getattr(run, name) for name in facts}, **workload.params, **run.params}
    for axis in sorted(workload.axes & row.keys()):
        row[axis] = chance.choice(workload.choices.get(axis) or ANY.get(type(row[axis]), (row[axis],)))
    return {"model": model, **MODELS[model].as_dict(), **row}


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_its_rules_say_the_same_of_arrays_and_of_single_candidates(name):
    workload, chance = WORKLOAD.find(name), random.Random(0)
    rows = [drawn(workload, chance) for _ in range(50)]
    assert len({rule.name for rule in workload.rules}) == len(workload.rules)
    for rule in workload.rules:
        single = [bool(np.all(rule.broken(row))) for row in rows]
        whole = np.asarray(rule.broken({column: np.array([row[column] for row in rows]) for column in rows[0]}))
        assert whole.dtype == np.bool_, rule.name
        assert np.broadcast_to(whole, len(rows)).tolist() == single, rule.name
        assert all(rule.reason.format_map(row) for row, broken in zip(rows, single, strict=True) if broken)
