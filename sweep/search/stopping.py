"""When a run has lost: by the fastest run of its cell so far, and by how much runs of this sweep vary. Pure.

By `auto`, the chance that the fastest configuration of a cell is stopped is at most ``CHANCE``: two iterations of its
run would have to be so much slower than the fastest measured run, by the spread between runs and within one. The
spreads are those of the sweep's own records, and before there are any that of published repetitions (``Scales.noise``),
which counts for ``PRIOR_RUNS`` repeats; Student's t for how well they are known.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

from sweep.contract import Run, SlowBound
from sweep.outcomes import Outcome
from sweep.physics.statistics import LEAST_FACTOR, pooled_variance, student_quantile
from sweep.planning.runs import PlannedRun
from sweep.search.scales import Scales
from sweep.state.events import Event, Recorded, RecordFacts

AUTO, OFF = "auto", "off"
CHANCE = 1e-4

PRIOR_RUNS = 8
"""by so many the spread is known within a factor of two, as that of published repetitions is: 0.5 to 5 %"""


class Stopping:
    """Bounds of attempts, from the journals: the same in every pilot that has read the same lines."""

    def __init__(self, runs: Sequence[PlannedRun], asked: str | float) -> None:
        """``asked``: AUTO, OFF, or a factor."""
        self._asked = asked
        self._runs = {} if asked == OFF else {planned.run_id: planned for planned in runs}
        self._cells: dict[Hashable, dict[str, dict[str, _Full]]] = defaultdict(lambda: defaultdict(dict))
        """cell -> configuration -> attempt"""
        self._lost: set[str] = set()
        """configurations of which a run was stopped"""

    def apply_all(self, events: Iterable[Event]) -> None:
        """Note the runs that were measured in full. What a suspect record says sets no bound."""
        for record in (event.record for event in events if isinstance(event, Recorded)):
            planned = self._runs.get(record.run_id)
            if planned is None or record.outcome is not Outcome.OK:
                continue
            if record.stopped is not None:
                self._lost.add(planned.configuration)
            elif record.step_time_median_s and not record.suspect:
                run = planned.run()
                full = _Full(run, record)
                self._cells[_cell(run)][planned.configuration][f"{record.run_id}.{record.attempt}"] = full

    def bound(self, planned: PlannedRun, *, again: bool) -> SlowBound | None:
        """Of an attempt; None where it is measured in full: a repeat of what was not stopped, and what a person wants
        to be measured ``again``.
        """
        if planned.run_id not in self._runs:
            return None
        run = planned.run()
        cell = self._cells.get(_cell(run))
        if not cell or again or (run.repeat and planned.configuration not in self._lost):
            return None
        usual = {name: statistics.median(full.token_s for full in runs.values()) for name, runs in cell.items()}
        attempt, full = next(iter(cell[min(usual, key=lambda name: usual[name])].items()))
        like = full.program == (run.workload, run.compile)  # only then is the warm-up of both the same work
        warmup = [time_s * run.global_batch_tokens for time_s in full.warmup_token_s] if like else []
        unknown = [math.inf] * (run.warmup_iterations - len(warmup))
        return SlowBound(
            step_s=min(usual.values()) * run.global_batch_tokens,
            warmup_s=(*unknown, *warmup[len(warmup) - run.warmup_iterations + len(unknown) :]),
            factor=self.factor(),
            set_by=attempt,
        )

    def factor(self) -> float:
        """By which an iteration must be slower than the fastest run's."""
        if self._asked != AUTO:
            return float(self._asked)
        configurations = [list(runs.values()) for cell in self._cells.values() for runs in cell.values()]
        iterations = [full.logs for runs in configurations for full in runs]
        return factor([[math.log(full.token_s) for full in runs] for runs in configurations], iterations)


def factor(repeats: Sequence[Sequence[float]], iterations: Sequence[Sequence[float]]) -> float:
    """That of AUTO. ``repeats``: of each configuration the logarithms of its runs' step times; ``iterations``: of each
    run those of its iterations.
    """
    usual = Scales().noise ** 2
    within, known = pooled_variance(iterations)
    within = within if known >= PRIOR_RUNS else max(within, usual)
    between, freedom = pooled_variance(repeats)
    if freedom < PRIOR_RUNS:  # until there are repeats, runs are taken to vary as much as their iterations do
        between, freedom = max(between, within, usual), PRIOR_RUNS
    # Both runs vary; of two iterations the faster is no slower than their mean.
    spread = math.sqrt(2 * between + within / 2)
    return max(LEAST_FACTOR, math.exp(student_quantile(1 - 2 * CHANCE, freedom) * spread))


class _Full:
    """A run that was measured in full."""

    def __init__(self, run: Run, record: RecordFacts) -> None:
        assert record.step_time_median_s is not None
        self.token_s = record.step_time_median_s / run.global_batch_tokens
        self.warmup_token_s = [time_s / run.global_batch_tokens for time_s in record.warmup_times_s or ()]
        self.logs = [math.log(time_s) for time_s in record.step_times_s or ()]
        self.program = run.workload, run.compile


def _cell(run: Run) -> Hashable:
    """Runs of which one is the answer: of a model, node count and length of sequence."""
    return run.model, run.nodes, run.sequence_length
