"""How long one choice takes with thousands of runs: python benchmarks/choose_speed.py [RUNS] [STRATEGY...]."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from itertools import cycle, product

import numpy as np

from sweep.contract import Layout, Run
from sweep.outcomes import Outcome
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.planning.runs import PlannedRun
from sweep.search.candidates import from_plan
from sweep.search.observations import Known
from sweep.search.search import Search, choose
from sweep.state.events import Recorded, RecordFacts
from sweep.state.state import SweepState

LIMIT_MS = 10.0
"""of the 99th percentile"""
ERROR, FAILED = 0.1, 0.1
"""standard deviation of the logarithm of rates about the predicted ones, and the share of runs that fail"""
WIDTHS = (4, 8, 16, 32)
NAMES = [f"n{i}" for i in range(WIDTHS[-1])]


def made_runs(count: int) -> list[PlannedRun]:
    """Different runs of four models on four node counts."""
    found = []
    for micro, zero, recompute, tp, pp, gas, nodes, model in product(
        (1, 2, 3, 4, 6, 8), (0, 1, 3), ("none", "selective", "full"), (1, 2, 4, 8), (1, 2, 4), (8, 16, 32),
        WIDTHS, ("1B", "3B", "8B", "Llama-3-8B"),
    ):  # fmt: skip
        layout = Layout(
            dp=nodes * 8 // (tp * pp) or 1, tp=tp, pp=pp, zero=zero,
            micro_batch_size=micro, grad_accum=gas, recompute=recompute,
        )  # fmt: skip
        run = Run(
            workload="nanotron", model=model, shape=MODELS[model].as_dict(), nodes=nodes, gpus_per_node=8,
            sequence_length=4096, layout=layout,
        )  # fmt: skip
        found.append(PlannedRun(run.run_id, model, nodes, None, run.canonical_json()))
        if len(found) == count:
            break
    return found


def record(sweep_state: SweepState, run: PlannedRun, attempt: int, rate: float | None) -> None:
    """The attempt's start and end: out of memory, or with some tokens/s/GPU."""
    facts = RecordFacts(
        run_id=run.run_id,
        attempt=attempt,
        pilot="p",
        outcome=Outcome.OOM_CUDA if rate is None else Outcome.OK,
        node_names=("a",),
        started_at=60.0 * len(sweep_state.runs),
        ended_at=60.0 * (len(sweep_state.runs) + 1),
        tokens_per_second_per_gpu=rate,
    )
    sweep_state.apply_all([Recorded(time=0.0, record=facts)])


def timed(runs: list[PlannedRun], strategy: str, limits: dict[str, float]) -> Iterator[float]:
    """Seconds of each choice of a whole sweep. Runs are about as fast as physics predicts; one in ten fails."""
    sweep_state, search = SweepState(), Search(runs, GPUS["h100"], strategy, limits)
    generator, places = np.random.default_rng(0), {run.run_id: place for place, run in enumerate(runs)}
    predicted = Known(from_plan(runs, GPUS["h100"])).posterior().log_rates(np.arange(len(runs)))
    rates = np.exp(predicted + ERROR * generator.normal(size=len(runs)))
    worked = generator.random(len(runs)) > FAILED
    choose(runs, sweep_state, WIDTHS[-1], 1e6, 60.0, search=search, names=NAMES)  # the first one reads the plan
    for nodes in cycle(WIDTHS):
        began = time.perf_counter()
        choice = choose(runs, sweep_state, nodes, 1e6, 60.0, search=search, names=NAMES[:nodes])
        yield time.perf_counter() - began
        if choice is not None:
            place = places[choice.planned.run_id]
            record(sweep_state, choice.planned, choice.attempt, float(rates[place]) if worked[place] else None)
        elif nodes == WIDTHS[-1]:
            return


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    names = sys.argv[2:] or ["exhaustive", "prune", "guided"]
    runs, slow = made_runs(count), False
    for strategy, limits in product(names, ({}, {"runs": count})):
        times = sorted(1000 * seconds for seconds in timed(runs, strategy, limits))
        high = times[int(0.99 * len(times))]
        slow |= high > LIMIT_MS
        name = f"{strategy}{', with a budget' if limits else ''}"
        print(f"| {name} | {len(times):,} | {statistics.median(times):.2f} ms | {high:.2f} ms | {times[-1]:.0f} ms |")
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
