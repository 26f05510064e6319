"""A recorded sweep of a cluster with known rates, for tests of searches."""

import numpy as np

from sweep.outcomes import Outcome
from sweep.physics.hardware import GPUS
from sweep.search.candidates import from_configurations
from sweep.search.saving import RecordedRun, promising_order
from tests.support.configurations import run

LAYOUTS = [
    (tp, pp, mbs, zero, nodes)
    for nodes in (1, 4)
    for tp in (1, 2, 4, 8)
    for pp in (1, 2)
    for mbs in (1, 2, 4, 8)
    for zero in (0, 1)
]


def truth(seed=0, workload="somebody"):
    """A cluster on which every part of a step is off by a factor of its own, with noise of 3 %."""
    generator = np.random.default_rng(seed)
    given = []
    for tp, pp, mbs, zero, nodes in LAYOUTS:
        dp = nodes * 8 // (tp * pp)
        if dp and 256 % (dp * mbs) == 0:
            made = run(dp=dp, tp=tp, pp=pp, mbs=mbs, gas=256 // (dp * mbs), zero=zero, workload=workload)
            given.append({**made, "nodes": nodes})
    ids = [f"run-{number:016x}" for number in generator.permutation(len(given))]
    first = from_configurations(ids, given, GPUS["h100"])
    order = promising_order(first)
    found = from_configurations([ids[i] for i in order], [given[i] for i in order], GPUS["h100"])
    parts = found.layouts.parts
    seconds = parts @ np.exp(generator.normal(0, 0.8, parts.shape[1]))
    rates = np.exp(found.log_tokens_per_gpu - np.log(seconds) + generator.normal(0, 0.03, len(found)))
    failed = generator.random(len(found)) < 0.15
    outcomes = tuple(Outcome.UNKNOWN if bad else Outcome.OK for bad in failed)
    return RecordedRun(found, outcomes, np.where(failed, np.nan, rates), np.full(len(found), np.nan))
