"""Runs of a trainer drawn by seed over all axes that it declares, such as its own rules and the plan's allow."""

import math
import random
from dataclasses import replace
from itertools import cycle

from sweep.contract import LAYOUT_FIELDS, RankRun
from sweep.physics.job import saves
from sweep.planning.effects import with_effect
from sweep.planning.rules import broken_by_run
from sweep.plugins import TRAINER
from tests.support.simulated import place
from tests.support.trainers.layouts import EXPERTS, SHAPE, run_of

SIZES = {
    **dict.fromkeys(("dp", "tp", "pp", "cp"), (1, 1, 2, 4)),
    "ep": (1, 2, 4),
    "etp": (0, 1, 2),
    "grad_accum": (1, 2, 4, 8),
    "micro_batch_size": (1, 2),
    "virtual_stages": (1, 2, 4),
    "recompute_layers": (0, 0, 1, 2),
}
SWITCHES = dict.fromkeys(("tp_overlap", "ep_overlap", "fp8_params", "compile"), (False, True))
TEXTS = {
    "pipeline_layout": ("", "", "Et*3|t*2|t*2|tL", "Et|t*3|t*3|tL"),
    "recompute_modules": ("", "mlp", "layernorm,mlp", "moe_act,shared_experts", "core_attn"),
    "cuda_graphs": ("none", "none", "full_iteration", "full", "attn", "attn,moe_router,moe_preprocess", "attn,mlp"),
}
"""where a workload does not list an axis's values itself"""


def values(workload, axis):
    """What is drawn of an axis."""
    listed = [value for value in workload.choices.get(axis, ()) if value != "skewed"]  # no trainer takes it
    return listed or SIZES.get(axis) or SWITCHES.get(axis) or TEXTS[axis]


def drawn(trainer, count, seed, **params):
    """So many runs. Params are of all."""
    workload, rng, found = TRAINER.find(trainer).workload, random.Random(seed), []
    axes = sorted({*LAYOUT_FIELDS, "dtype", "compile"} & workload.axes)
    while len(found) < count:
        own = {axis: rng.choice(values(workload, axis)) for axis in axes}
        shape = rng.choice((SHAPE, EXPERTS))
        if own.get("pipeline_layout"):
            own |= {"pp": 2, "pp_schedule": "interleaved_1f1b", "virtual_stages": 2}
        own |= {"ep": own["ep"] if shape["num_experts"] else 1} if "ep" in own else {}
        own = with_effect({**shape, "compile": False, **params, **own}, workload)
        own = {axis: value for axis, value in own.items() if axis in workload.axes}
        run = run_of(trainer, shape=shape, params=params, **own)
        ranks = math.prod(own.get(axis, 1) for axis in ("dp", "tp", "pp", "cp"))
        if ranks <= 32 and not broken_by_run(run, workload):
            found.append(run)
    return found


def saving(runs):
    """The same, one after the other without a checkpoint and with each kind that the trainer has."""
    kinds = TRAINER.find(runs[0].workload).workload.choices["checkpoint"]
    asked = [replace(run, params={**run.params, "checkpoint": kind}) for run, kind in zip(runs, cycle(kinds))]
    here = place(checkpoint_dir="/checkpoints/r.1")
    return [RankRun.of(run, here) if saves(run.params) else run for run in asked]


def unvaried(trainer, runs):
    """Axes of the trainer of which all runs have one value."""
    workload = TRAINER.find(trainer).workload
    seen = {axis: {getattr(run.layout, axis, getattr(run, axis, None)) for run in runs} for axis in workload.axes}
    return sorted(axis for axis, found in seen.items() if len(found) == 1)
