"""Configurations of runs, as the search reads them from a plan."""

from sweep.physics.catalogue import MODELS


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
