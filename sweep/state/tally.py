"""How far a sweep is: runs by state, the best so far, the cost, what is left. Pure: time is an argument."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sweep.outcomes import Outcome
from sweep.planning.runs import ASSUMED_RUN_S, ASSUMED_START_S, PlannedRun
from sweep.state.state import Attempt, PilotState, RunState, SweepState

PLACES = ("ok", "running", "waiting")
"""states of a run that did not fail"""
MIN_ENDED = 3
"""ended attempts below which their own spread says too little"""
ASSUMED_FACTOR = 2.0
"""until then the time left is at least from half to twice the estimate; `sweep status --help` says so"""
WIDE = 2.0
"""standard errors on each side of an estimate: about 95 % of a normal distribution"""


@dataclass
class Cell:
    """One cell of models × nodes, with the results so far."""

    runs: int = 0
    done: int = 0
    rates: dict[str, dict[str, float]] = field(default_factory=dict)
    """configuration -> run_id of it and its repeats -> tokens/s/GPU of the attempt that counts"""

    @property
    def best(self) -> float | None:
        """The rate of the best configuration so far, tokens/s/GPU."""
        return max(self.medians(), default=None)

    @property
    def winner(self) -> str | None:
        """The run_id of the best configuration so far, of its repeats the one nearest to their median."""
        rates = max(self.rates.values(), key=_median, default=None)
        if rates is None:
            return None
        middle = _median(rates)
        return min(rates, key=lambda run_id: abs(rates[run_id] - middle))

    def medians(self) -> list[float]:
        """Each measured configuration's rate: the median of its repeats, as in ``analysis.derive.best``, since the
        first run of one that was repeated was a fast one.
        """
        return [_median(rates) for rates in self.rates.values()]

    def median_with(self, run_id: str) -> tuple[float, int] | None:
        """(median, its runs) of the configuration of a run; None where it was not measured."""
        return next(((_median(rates), len(rates)) for rates in self.rates.values() if run_id in rates), None)


def _median(rates: Mapping[str, float]) -> float:
    """Of one configuration's repeats. The module ``statistics`` takes 20 ms to import."""
    found = sorted(rates.values())
    return (found[(len(found) - 1) // 2] + found[len(found) // 2]) / 2


class _Share(NamedTuple):
    """One run's contribution to the sums; subtracted and added again when it changes. One per run: a tuple."""

    word: str
    begun: bool
    rate: float | None
    ended_s: float
    """total duration of its ended attempts"""
    ended: int


@dataclass
class _Ended:
    """Sums over the attempts that ended, and how far they were from what the plan predicted."""

    seconds: float = 0.0
    number: int = 0
    gpu_s: float = 0.0
    predicted_s: float = 0.0
    log_ratio: float = 0.0
    log_ratio_squared: float = 0.0

    def add(self, share: _Share, predicted_s: float, gpus: int, sign: int) -> None:
        """Add a run's attempts, or subtract them with ``sign`` -1. ``predicted_s``: of one attempt."""
        all_s = share.ended * predicted_s
        ratio = math.log(max(share.ended_s, 1e-3) / all_s)
        self.seconds += sign * share.ended_s
        self.number += sign * share.ended
        self.gpu_s += sign * share.ended_s * gpus
        self.predicted_s += sign * all_s
        self.log_ratio += sign * share.ended * ratio
        self.log_ratio_squared += sign * share.ended * ratio**2

    @property
    def correction(self) -> float:
        """Ratio of actual to expected time of attempts; one more counts as if it had taken what was predicted."""
        if not self.number:
            return 1.0
        one = self.predicted_s / self.number
        return (self.seconds + one) / (self.predicted_s + one)

    def factors(self, to_come: int, without_start: float) -> tuple[float, float]:
        """(least, most) that the mean of what is to come may be, as multiples of the corrected prediction.

        What the attempt that was only assumed changes widens the side on which the attempts that ended are.
        ``without_start``: of the prediction, what is no assumed start.
        """
        if not self.number:
            return min(1 / ASSUMED_FACTOR, without_start), ASSUMED_FACTOR
        took = max(self.seconds, 1e-3) / self.predicted_s / self.correction
        if self.number < MIN_ENDED:
            return min(1 / ASSUMED_FACTOR, without_start, took), max(ASSUMED_FACTOR, took)
        mean = self.log_ratio / self.number
        variance = max(0.0, self.log_ratio_squared / self.number - mean**2) * self.number / (self.number - 1)
        error = math.sqrt(variance * (1 / self.number + 1 / max(1, to_come)))
        return min(took, 1.0) * math.exp(-WIDE * error), max(took, 1.0) * math.exp(WIDE * error)


class Tally:
    """The sums over a sweep's runs. It follows one state: an update costs only what changed since the last one.

    ``serial``: one run at a time, as on one machine, instead of as many as there are nodes for.
    """

    def __init__(self, runs: Sequence[PlannedRun], gpus_per_node: Mapping[str, int], *, serial: bool) -> None:
        """``gpus_per_node``: of each node group; "" -> of a site without groups."""
        self._serial = serial
        self._runs = {planned.run_id: planned for planned in runs}
        self.total = len(self._runs)
        """runs of the plan"""
        self._gpus_per_node = gpus_per_node
        self._widths = {planned.nodes for planned in runs}
        self._read: int
        self._sweep_state: SweepState
        self._begin(SweepState())

    def update(self, sweep_state: SweepState) -> Tally:
        """Update with what changed."""
        if sweep_state is not self._sweep_state and self._read:
            self._begin(sweep_state)
        self._sweep_state = sweep_state  # if nothing was read of the previous one, the sums stay
        changed = dict.fromkeys(sweep_state.touched[self._read :])
        self._read = len(sweep_state.touched)
        for run_id in changed:
            if run_id in self._runs:
                self._renew(self._runs[run_id], _share(sweep_state.runs[run_id]))
        return self

    def counts(self, skipped: Mapping[str, str] | None = None) -> Mapping[str, int]:
        """Number of runs by outcome of the attempt that counts, `running`, `waiting`.

        ``skipped``: run_id -> state name of those that must not start (``sweep.search.search.Search.skipped``).
        """
        found = self._words.copy()
        for run_id, word in (skipped or {}).items():
            if run_id in self._runs and not self._shares[run_id].begun:
                found[self._shares[run_id].word] -= 1
                found[word] += 1
        return {word: number for word, number in found.items() if number}

    @property
    def failures(self) -> Mapping[str, int]:
        """Outcome -> runs whose attempt that counts has it, most frequent first."""
        failed = {word: number for word, number in self._words.items() if number and word not in PLACES}
        return dict(sorted(failed.items(), key=lambda item: -item[1]))

    def ended_as(self, outcomes: Collection[str]) -> list[str]:
        """The runs whose attempt that counts has one of these, and that are not tried again, in the plan's order."""
        return [run_id for run_id, share in self._shares.items() if share.word in outcomes]

    def example(self, outcome: str) -> str:
        """The message of the latest attempt with this outcome; empty where it had none."""
        return self._messages.get(outcome, "")

    @property
    def typical_run_s(self) -> float:
        """Typical duration of an attempt, from those that ended; an assumption where none did."""
        return self._ended.seconds / self._ended.number if self._ended.number else ASSUMED_RUN_S

    def latest(self, most: int) -> list[tuple[PlannedRun, Attempt]]:
        """The attempts that ended last, the latest first."""
        found: dict[str, tuple[float, Attempt]] = {}
        for run_id in reversed(self._sweep_state.touched):
            last = self._sweep_state.runs[run_id].last if run_id in self._runs else None
            if last is not None and last.ended_at is not None:
                found[run_id] = last.ended_at, last
            if len(found) >= most:
                break
        ordered = sorted(found.items(), key=lambda item: -item[1][0])
        return [(self._runs[run_id], attempt) for run_id, (_, attempt) in ordered]

    def in_flight(self) -> list[tuple[PlannedRun, Attempt]]:
        """The runs that are being measured, with their attempts."""
        found = [(self._runs[run_id], self._sweep_state.runs[run_id].last) for run_id in self._in_flight]
        return [(planned, attempt) for planned, attempt in found if attempt is not None]

    def seconds_left(self, now: float, skipped: Mapping[str, str] | None = None) -> float:
        """Time that the rest takes on the nodes of the running pilots (of one pilot where none runs).

        A run's expected time is the plan's prediction, corrected by the ratio observed so far; one more attempt counts
        as if it had taken what was predicted, so that the first ones do not overturn the estimate.
        """
        node_s = self._waiting_node_s - sum(self._expected(run_id) for run_id in self._not_begun(skipped or {}))
        node_s *= self._ended.correction
        for planned, attempt in self.in_flight():
            expected_s = (planned.predicted_s or self._assumed_s) * self._ended.correction
            node_s += self._width(planned) * max(0.0, expected_s - (now - (attempt.started_at or now)))
        at_work = sum(pilot.nodes for pilot in self._sweep_state.pilots.values() if pilot.running)
        return max(0.0, node_s) / (1 if self._serial else at_work or max(self._widths, default=1))

    def range_left(self, now: float, skipped: Mapping[str, str] | None = None) -> tuple[float, float]:
        """(low, high) that ``seconds_left`` may be: by the spread of the attempts' ratios so far, for the mean of
        those and of the runs to come, and by what the attempt that was only assumed changes.

        Before ``MIN_ENDED`` attempts: also what those that ended took, and starts that take no time.
        """
        left_s = self.seconds_left(now, skipped)
        low, high = self._ended.factors(self._words["waiting"] + self._words["running"], self._without_start)
        return left_s * low, left_s * high

    @property
    def informed(self) -> bool:
        """Whether the time left has a basis: an attempt that ended, or a prediction."""
        return bool(self._ended.number) or self._predicted

    def gpu_hours(self, now: float) -> tuple[float, float]:
        """GPU-hours spent so far: (allocated to pilots, used by attempts)."""
        held_s = sum(
            self._gpus(pilot) * max(0.0, (pilot.ended_at or now) - pilot.started_at)
            for pilot in self._sweep_state.pilots.values()
            if pilot.started_at is not None
        )
        used_s = self._ended.gpu_s
        for planned, attempt in self.in_flight():
            used_s += self._gpus(planned) * max(0.0, now - (attempt.started_at or now))
        return held_s / 3600, used_s / 3600

    def saved_gpu_hours(self, skipped: Mapping[str, str]) -> Mapping[str, float]:
        """Node group -> GPU-hours that an exhaustive sweep would spend in addition: on the runs that are left out.

        A run's expected time is as in ``seconds_left``: predicted, corrected by the ratio observed so far.
        """
        found: defaultdict[str, float] = defaultdict(float)
        for planned in (self._runs[run_id] for run_id in self._not_begun(skipped)):
            seconds = (planned.predicted_s or self._assumed_s) * self._ended.correction
            found[planned.node_group] += self._gpus(planned) * seconds / 3600
        return found

    def _begin(self, sweep_state: SweepState) -> None:
        self._sweep_state = sweep_state
        self._read = 0
        self._shares = dict.fromkeys(self._runs, _share(RunState()))
        self._words = Counter({"waiting": len(self._runs)})
        self._messages: dict[str, str] = {}
        self._in_flight: dict[str, None] = {}
        self._ended = _Ended()
        predicted = [planned.predicted_s for planned in self._runs.values() if planned.predicted_s]
        self._predicted = bool(predicted)
        self._assumed_s = sum(predicted) / len(predicted) if predicted else ASSUMED_RUN_S
        self._without_start = max(0.0, 1 - ASSUMED_START_S / self._assumed_s)
        self._waiting_node_s = sum(map(self._expected, self._runs))
        self.cells: dict[tuple[str, int], Cell] = {}
        """(model, nodes) -> cell, in the plan's order of models"""
        for planned in self._runs.values():
            self.cells.setdefault((planned.model, planned.nodes), Cell()).runs += 1

    def _width(self, planned: PlannedRun) -> int:
        return 1 if self._serial else planned.nodes

    def _gpus(self, held: PlannedRun | PilotState) -> int:
        return held.nodes * self._gpus_per_node.get(held.node_group, 0)

    def _expected(self, run_id: str) -> float:
        """Node-seconds of one attempt, from the plan only."""
        planned = self._runs[run_id]
        return self._width(planned) * (planned.predicted_s or self._assumed_s)

    def _not_begun(self, skipped: Mapping[str, str]) -> list[str]:
        return [run_id for run_id in skipped if run_id in self._runs and not self._shares[run_id].begun]

    def _renew(self, planned: PlannedRun, share: _Share) -> None:
        run_id, cell = planned.run_id, self.cells[planned.model, planned.nodes]
        before, self._shares[run_id] = self._shares[run_id], share
        predicted_s, gpus = planned.predicted_s or self._assumed_s, self._gpus(planned)
        for one, sign in ((before, -1), (share, 1)):
            if one.ended:
                self._ended.add(one, predicted_s, gpus, sign)
        if share.rate is not None:
            cell.rates.setdefault(planned.configuration, {})[run_id] = share.rate
        elif before.rate is not None:
            rates = cell.rates[planned.configuration]
            del rates[run_id]
            if not rates:
                del cell.rates[planned.configuration]
        if before.word != share.word:
            self._add_word(planned, cell, before.word, -1)
            self._add_word(planned, cell, share.word, 1)
        if share.word == "running":
            self._in_flight[run_id] = None
        else:
            self._in_flight.pop(run_id, None)
        if share.word not in PLACES:
            last = self._sweep_state.runs[run_id].last
            self._messages[share.word] = (last and last.message) or ""

    def _add_word(self, planned: PlannedRun, cell: Cell, word: str, sign: int) -> None:
        self._words[word] += sign
        if word == "waiting":
            self._waiting_node_s += sign * self._expected(planned.run_id)
        elif word != "running":
            cell.done += sign


def _share(state: RunState) -> _Share:
    ended_s, ended = 0.0, 0
    for attempt in state.attempts.values():
        if attempt.ended_at is not None and attempt.started_at is not None and attempt.outcome is not Outcome.LOST:
            ended_s += attempt.ended_at - attempt.started_at
            ended += 1
    ok = state.ok
    rate = ok.tokens_per_second_per_gpu if ok is not None else None
    return _Share(_word(state, ok), bool(state.attempts), rate, ended_s, ended)


def _word(state: RunState, ok: Attempt | None) -> str:
    """``ok``: the attempt that counts, of those that are ok."""
    if ok is not None and ok.number > state.rerun_after:
        return "ok"
    last = state.last
    if last is None or state.next_attempt() is not None:
        return "waiting"
    if last.outcome is None:
        return "running"
    return "ok" if ok is not None else str(last.outcome)


def elapsed_s(sweep_state: SweepState, now: float) -> float | None:
    """Seconds from the first pilot's submission to now, or to the end of the last pilot where none is open."""
    pilots = [pilot for pilot in sweep_state.pilots.values() if pilot.intended_at]
    if not pilots:
        return None
    ended = [pilot.ended_at or now for pilot in pilots]
    until = now if any(pilot.open and pilot.ended is None for pilot in pilots) else max(ended)
    return max(0.0, until - min(pilot.intended_at for pilot in pilots))
