"""A discrete-event model of pilots on a large cluster, around the real scheduling code.

    python -m benchmarks.model [--nodes 10000] [--runs 100000] [--max-pilots 300] [--pilot-time 7200]

`sweep.search` chooses a pilot's next run and `sweep.launcher.pilots_wanted` which pilots are submitted; journals are
events applied to one `SweepState`. Modelled are the cluster (first come, first served, with EASY backfill by the jobs'
limits), the time that runs take (log-normal, unknown beforehand), and the overhead of pilots (`START_S`,
`END_S`, `BETWEEN_S`: more than benchmarks/rivals measures on one machine). Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import simpy

from sweep.contract import Layout, Run
from sweep.launcher.pilots_wanted import Capacity, Wanted, pilots_wanted
from sweep.outcomes import Outcome
from sweep.physics.catalogue import MODELS
from sweep.pilot.leader.pilot_time import MARGIN_S, UNKNOWN_RUN
from sweep.planning.runs import ASSUMED_RUN_S, PlannedRun
from sweep.search.search import Choice, Search, choose
from sweep.state.events import (
    AttemptStarted,
    PilotEnded,
    PilotGone,
    PilotIntended,
    PilotStarted,
    PilotSubmitted,
    Recorded,
    RecordFacts,
)
from sweep.state.state import SweepState

START_S, END_S, BETWEEN_S = 15.0, 5.0, 2.0
"""from the job's start to its first attempt; from its last one to its end; overhead of each attempt"""
QUEUE_S = 30.0
"""from a submission to the scheduler's first pass over it"""
POLL_S = 15.0
"""the launcher's poll interval"""
ATTEMPT_S = 900.0
"""the longest that an attempt may take"""
RUN_S = 75.0
"""the median run"""
SPREAD = 0.5
"""standard deviation of the logarithm of a run's seconds"""
TAIL = 0.05
"""the last part of the sweep's time, in which too little is left to fill the cluster"""

Steps = Generator[simpy.Event, Any, None]


@dataclass
class Job:
    """A pilot's job in the queue or on its nodes."""

    name: str
    nodes: int
    limit_s: int
    started: simpy.Event
    held: list[str] = field(default_factory=list)
    ends_by: float = 0.0


class Cluster:
    """Nodes, and a queue in front of them."""

    def __init__(self, env: simpy.Environment, nodes: int) -> None:
        self._env = env
        self._free = [f"n{i}" for i in range(nodes)]
        self._waiting: list[Job] = []
        self._running: list[Job] = []

    def submit(self, job: Job) -> None:
        self._waiting.append(job)
        self.schedule()

    def give_back(self, job: Job) -> None:
        self._free += job.held
        self._running.remove(job)
        self.schedule()

    def schedule(self) -> None:
        """Start the head of the queue while it fits; then what fits without delaying the head."""
        while self._waiting and self._waiting[0].nodes <= len(self._free):
            self._start(self._waiting[0])
        if not self._waiting:
            return
        shadow, spare = self._shadow(self._waiting[0].nodes)
        for job in self._waiting[1:]:
            in_time = self._env.now + job.limit_s <= shadow
            if job.nodes <= len(self._free) and (in_time or job.nodes <= spare):
                spare -= 0 if in_time else job.nodes
                self._start(job)

    def _shadow(self, nodes: int) -> tuple[float, int]:
        """The latest start of the head, and how many nodes are free then."""
        free = len(self._free)
        for job in sorted(self._running, key=lambda job: job.ends_by):
            free += job.nodes
            if free >= nodes:
                return job.ends_by, free - nodes
        return float("inf"), 0

    def _start(self, job: Job) -> None:
        self._waiting.remove(job)
        job.held, self._free = self._free[: job.nodes], self._free[job.nodes :]
        job.ends_by = self._env.now + job.limit_s
        self._running.append(job)
        job.started.succeed()


class Sweep:
    """One sweep: its launcher and its pilots."""

    def __init__(self, env: simpy.Environment, cluster: Cluster, runs: list[PlannedRun], given: Any) -> None:
        self._env, self._cluster, self._runs = env, cluster, runs
        self._max_pilots, self._pilot_time_s = given.max_pilots, given.pilot_time
        self._chance = random.Random(given.seed)
        self.sweep_state = SweepState()
        self._search = Search(runs, strategy="exhaustive")
        self._changed = True
        self._spent_s, self._ended = 0.0, 0
        self._lasts_s: dict[str, float] = {}
        self.taken: list[tuple[float, float, int]] = []
        """of each attempt that measured: begin, end, nodes"""
        self.cut: list[tuple[float, float, int]] = []
        """of each attempt that the end of its pilot's time ended: the same"""
        self.held: list[tuple[float, float, int]] = []
        """of each pilot the same"""
        self.choice_ms: list[float] = []
        self.poll_ms: list[float] = []

    def launch(self) -> Steps:
        """The launcher: polls until all runs have ended and no pilot is left."""
        while self._ended < len(self._runs) or any(pilot.open for pilot in self.sweep_state.pilots.values()):
            if self._changed:
                self._changed = False
                begin = time.perf_counter()
                skipped = self._search.skipped(self.sweep_state)
                asked_for = [run for run in self._runs if run.run_id not in skipped]
                wanted = pilots_wanted(asked_for, self.sweep_state, self._capacity())
                self.poll_ms.append(1000 * (time.perf_counter() - begin))
                for one in wanted:
                    self._submit(one)
            yield self._env.timeout(POLL_S)

    def _capacity(self) -> Capacity:
        return Capacity(
            max_pilots=self._max_pilots, pilot_time_s=self._pilot_time_s, attempt_s=ATTEMPT_S, now=self._env.now,
            run_s=self._spent_s / (self._ended + len(self.cut)) if self._ended else ASSUMED_RUN_S,
        )  # fmt: skip

    def _submit(self, wanted: Wanted) -> None:
        name = f"p{len(self.sweep_state.pilots) + 1:04d}"
        now = self._env.now
        intended = PilotIntended(time=now, pilot=name, token=name, nodes=wanted.nodes, time_limit_s=wanted.time_limit_s)
        self.sweep_state.apply_all([intended, PilotSubmitted(time=now, pilot=name, job_id=name)])
        job = Job(name, wanted.nodes, wanted.time_limit_s, self._env.event())
        self._env.process(self._lead(job))

    def _lead(self, job: Job) -> Steps:
        """A pilot, from its submission to its end."""
        yield self._env.timeout(QUEUE_S)
        self._cluster.submit(job)
        yield job.started
        begin = self._env.now
        self.sweep_state.apply_all([PilotStarted(time=begin, pilot=job.name, nodes=tuple(job.held), job_id=job.name)])
        self._changed = True
        yield self._env.timeout(START_S)
        going: dict[simpy.Event, Choice] = {}
        free, durations = list(job.held), []
        while True:
            while free and (choice := self._choose(job, free, durations)) is not None:
                free = [name for name in free if name not in set(choice.nodes)]
                going[self._env.process(self._measure(job, choice))] = choice
            if not going:
                break
            yield self._env.any_of(list(going))
            for done in [event for event in going if event.processed]:
                free += going.pop(done).nodes
                durations.append(done.value)
        self.sweep_state.apply_all([PilotEnded(time=self._env.now, pilot=job.name, reason="nothing left that fits")])
        yield self._env.timeout(END_S)
        self.sweep_state.apply_all([PilotGone(time=self._env.now, pilot=job.name, word="COMPLETED")])
        self._changed = True
        self.held.append((begin, self._env.now, job.nodes))
        self._cluster.give_back(job)

    def _choose(self, job: Job, free: list[str], durations: list[float]) -> Choice | None:
        """The leader's request, with its estimate for the next run."""
        unknown_s = min(UNKNOWN_RUN * ASSUMED_RUN_S, ATTEMPT_S, 0.5 * job.limit_s)
        expected_s = 1.5 * max(durations[-20:]) if durations else unknown_s
        begin = time.perf_counter()
        choice = choose(
            self._runs, self.sweep_state, len(free), self._left_s(job), expected_s, names=free, search=self._search
        )
        self.choice_ms.append(1000 * (time.perf_counter() - begin))
        if choice is not None:
            started = AttemptStarted(
                time=self._env.now,
                pilot=job.name,
                run_id=choice.planned.run_id,
                attempt=choice.attempt,
                nodes=choice.nodes,
            )
            self.sweep_state.apply_all([started])
        return choice

    def _measure(self, job: Job, choice: Choice) -> Generator[simpy.Event, Any, float]:
        """An attempt: to its end, or until the leader ends it before the end of the job."""
        begin, run_id = self._env.now, choice.planned.run_id
        if run_id not in self._lasts_s:
            self._lasts_s[run_id] = min(ATTEMPT_S, RUN_S * self._chance.lognormvariate(0.0, SPREAD)) + BETWEEN_S
        seconds = min(self._lasts_s[run_id], self._left_s(job))
        yield self._env.timeout(seconds)
        whole = seconds == self._lasts_s[run_id]
        record = RecordFacts(
            run_id=run_id,
            attempt=choice.attempt,
            pilot=job.name,
            outcome=Outcome.OK if whole else Outcome.PREEMPTED,
            started_at=begin,
            ended_at=self._env.now,
        )
        self.sweep_state.apply_all([Recorded(time=self._env.now, record=record)])
        (self.taken if whole else self.cut).append((begin, self._env.now, choice.planned.nodes))
        self._spent_s += seconds
        self._ended += whole
        return seconds

    def _left_s(self, job: Job) -> float:
        return job.ends_by - self._env.now - min(MARGIN_S, 0.1 * job.limit_s)


def made_runs(count: int, widest: int) -> list[PlannedRun]:
    """Equally many runs of each width: 1, 2, 4 … nodes."""
    widths = [2**k for k in range(widest.bit_length()) if 2**k <= widest]
    found = []
    for place in range(count):
        nodes = widths[place % len(widths)]
        layout = Layout(dp=nodes * 8, micro_batch_size=1 + place // len(widths) % 8)
        run = Run(
            workload="simulated", model="1B", shape=MODELS["1B"].as_dict(), nodes=nodes, gpus_per_node=8,
            sequence_length=4096, layout=layout, repeat=place,
        )  # fmt: skip
        found.append(PlannedRun(run.run_id, run.model, nodes, None, run.canonical_json()))
    return found


def area(spans: list[tuple[float, float, int]], until: float) -> float:
    """Node-seconds before a time."""
    return sum(nodes * max(0.0, min(end, until) - begin) for begin, end, nodes in spans)


def report(sweep: Sweep, runs: list[PlannedRun], nodes: int) -> dict[str, Any]:
    end = max(end for _, end, _ in sweep.held)
    until = (1 - TAIL) * end
    measured = [end for _, end, _ in sweep.taken]
    assert len(sweep.taken) == len(runs) == len(sweep.sweep_state.runs), "each run once"
    busiest = max(area(sweep.taken, end) / nodes, *(e - b for b, e, _ in sweep.taken))
    return {
        "nodes": nodes,
        "runs": len(runs),
        "jobs": len(sweep.held),
        "attempts_cut_by_wall_time": len(sweep.cut),
        "hours": round(end / 3600, 2),
        "hours_at_least": round(busiest / 3600, 2),
        "allocated_share_in_attempts": round(area(sweep.taken, end) / area(sweep.held, end), 4),
        "allocated_share_in_attempts_but_last_5_percent": round(area(sweep.taken, until) / area(sweep.held, until), 4),
        "cluster_share_in_attempts_but_last_5_percent": round(area(sweep.taken, until) / (nodes * until), 4),
        "first_result_s": round(min(measured), 1),
        "choose_ms_median": round(statistics.median(sweep.choice_ms), 2),
        "choose_ms_99th": round(sorted(sweep.choice_ms)[int(0.99 * len(sweep.choice_ms))], 2),
        "pilots_wanted_ms_median": round(statistics.median(sweep.poll_ms), 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.model", description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--widest", type=int, default=256)
    parser.add_argument("--max-pilots", type=int, default=300)
    parser.add_argument("--pilot-time", type=int, default=4 * 3600)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    begin = time.monotonic()
    env = simpy.Environment()
    runs = made_runs(given.runs, given.widest)
    sweep = Sweep(env, Cluster(env, given.nodes), runs, given)
    env.process(sweep.launch())
    env.run()
    print(json.dumps({**report(sweep, runs, given.nodes), "model_s": round(time.monotonic() - begin, 1)}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
