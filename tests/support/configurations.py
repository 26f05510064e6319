"""Configurations of runs, as the search reads them from a plan."""

from sweep.outcomes import Outcome
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.search.candidates import from_configurations
from sweep.search.observations import Known


def run(
    dp=1, tp=1, pp=1, mbs=1, gas=8, zero=0, recompute="none", model="1B", workload="somebody", repeat=0,
    pp_schedule="1f1b", **params,
):  # fmt: skip
    layout = {"dp": dp, "tp": tp, "pp": pp, "cp": 1, "ep": 1, "zero": zero, "micro_batch_size": mbs, "grad_accum": gas}
    layout |= {"recompute": recompute, "pp_schedule": pp_schedule}
    return {
        "workload": workload, "model": model, "shape": MODELS[model].as_dict(), "nodes": 1, "gpus_per_node": 8,
        "sequence_length": 4096, "layout": layout, "dtype": "bf16", "compile": False, "repeat": repeat,
        "params": params, "env": {},
    }  # fmt: skip


def made_candidates(given, gpu=GPUS["h100"]):
    """Of these configurations, in their order."""
    return from_configurations([f"run-{place:016x}" for place in range(len(given))], given, gpu)


def made_known(given, rates=()):
    """What is known of them. ``rates``: (place, tokens/s/GPU) of those that ended; None: it hung."""
    found = Known(made_candidates(given))
    for place, rate in rates:
        found.end(place, Outcome.HANG if rate is None else Outcome.OK, rate)
    return found
