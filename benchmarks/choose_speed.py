"""How long one choice takes with thousands of runs: python benchmarks/choose_speed.py [RUNS] [STRATEGY...]."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from itertools import product

from sweep.contract import Layout, Run
from sweep.outcomes import Outcome
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.plan.runs import PlannedRun
from sweep.search.search import Search, choose
from sweep.state.events import Recorded, RecordFacts
from sweep.state.state import SweepState

CHOICES = 200
LIMIT_MS = 10.0
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


def record(sweep_state: SweepState, run: PlannedRun, attempt: int, place: int) -> None:
    """The attempt's start and end: one in ten out of memory, the rest with some rate."""
    ok = place % 10 != 0
    facts = RecordFacts(
        run_id=run.run_id,
        attempt=attempt,
        pilot="p",
        outcome=Outcome.OK if ok else Outcome.OOM_CUDA,
        node_names=("a",),
        started_at=60.0 * len(sweep_state.runs),
        ended_at=60.0 * (len(sweep_state.runs) + 1),
        tokens_per_second_per_gpu=4000.0 + place % 977 if ok else None,
    )
    sweep_state.apply(Recorded(time=0.0, record=facts))


def timed(runs: list[PlannedRun], strategy: str, done: int, limits: dict[str, float]) -> Iterator[float]:
    """Seconds of each choice, the attempt recorded after it; ``done`` runs have ended before."""
    sweep_state, search = SweepState(), Search.of(runs, GPUS["h100"], strategy, limits)
    for place, run in enumerate(runs[:done]):
        record(sweep_state, run, 1, place)
    choose(runs, sweep_state, WIDTHS[-1], 1e6, 60.0, search=search, names=NAMES)  # the first one reads the plan
    for place in range(CHOICES):
        nodes = WIDTHS[place % 4]
        began = time.perf_counter()
        choice = choose(runs, sweep_state, nodes, 1e6, 60.0, search=search, names=NAMES[:nodes])
        yield time.perf_counter() - began
        if choice is not None:
            record(sweep_state, choice.planned, choice.attempt, place)


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    names = sys.argv[2:] or ["exhaustive", "prune", "guided", "random"]
    runs, slow = made_runs(count), False
    for strategy, done in product(names, (0, count // 2, count - CHOICES)):
        for limits in ({}, {"runs": count}):
            times = sorted(1000 * seconds for seconds in timed(runs, strategy, done, limits))
            median, worst = statistics.median(times), times[int(0.99 * len(times))]
            slow |= median > LIMIT_MS
            name = f"{strategy}, {'a budget' if limits else 'no budget'}, {done} of {count} done"
            print(f"{name:<45}: median {median:.2f} ms, 99th percentile {worst:.2f} ms")
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
