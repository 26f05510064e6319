"""Runs one check on nodes of the pilot, as an attempt like any other: same start, hang detection and clean-up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sweep.checks.check import Json
from sweep.contract import Layout, Run, Scalar, Workload
from sweep.doctor.request import Request
from sweep.outcomes import Outcome
from sweep.pilot.leader.attempt import AttemptRunner
from sweep.pilot.leader.attempt_result import AttemptResult
from sweep.pilot.leader.link import Link
from sweep.pilot.limits import Limits

ATTEMPT_S = 240.0
"""the longest check as a whole"""


TORCH = ("torch", "torch.distributed", "bench_workloads.checks.rates", "bench_workloads.checks.exchange")
"""one zygote for both programs: a node imports torch once"""


def workload(name: str, *, torch: bool, listens: bool) -> Workload:
    """The declaration of one of the checks' programs."""
    module = f"bench_workloads.checks.{name}"
    preload = TORCH if torch else (module,)
    return Workload(
        name="checks", main=f"{module}:main", axes=frozenset({"dp"}), preload=preload, takes_listener=listens
    )


READ = workload("main", torch=False, listens=False)
RATES = workload("rates", torch=True, listens=True)
EXCHANGE = workload("exchange", torch=True, listens=True)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The result of one attempt."""

    nodes: tuple[str, ...]
    ranks: Mapping[str, Sequence[Mapping[str, Json]]] = field(default_factory=dict)
    """node -> the further values of each of its ranks' measurements; complete or empty"""
    steps_s: Mapping[str, float] = field(default_factory=dict)
    """node -> the fastest step of its slowest rank; complete or empty"""
    problem: str = ""
    accused: tuple[str, ...] = ()
    asked_at: float = 0.0
    answered_at: float = 0.0


class CheckAttempts:
    """Conducts attempts, a few at a time."""

    def __init__(self, request: Request, at_once: int) -> None:
        self._request = request
        self._turn = asyncio.Semaphore(at_once)
        self._number = 0

    async def conduct(
        self,
        program: Workload,
        links: Sequence[Link],
        ranks_per_node: int,
        params: Mapping[str, Scalar],
    ) -> Answer:
        """One attempt of a check's program on these nodes; never raises."""
        run = Run(
            workload=program.name,
            model="checks",
            shape={},
            nodes=len(links),
            gpus_per_node=ranks_per_node,
            sequence_length=1,
            layout=Layout(dp=len(links) * ranks_per_node),
            params=params,
        )
        return await self.run(program, links, run, self._request.step_s)

    async def run(self, program: Workload, links: Sequence[Link], run: Run, first_s: float) -> Answer:
        """One attempt on these nodes; never raises. ``first_s``: the longest time of its first iteration."""
        self._number += 1
        nodes = tuple(link.node for link in links)
        limits = Limits(
            start_s=self._request.start_s,
            first_iteration_s=first_s,
            steady_s=self._request.step_s,
            attempt_s=ATTEMPT_S,
        )
        async with self._turn:
            asked_at = time.time()
            lost = [link.node for link in links if not link.alive or not link.clean]
            if lost:
                text = f"the connection to {', '.join(lost)} is lost, or the node could not be cleared"
                return Answer(nodes=nodes, problem=text, accused=tuple(lost))
            runner = AttemptRunner(f"check.{self._number}", run, program, links, limits, 0, None, self._request.gpu)
            result = await runner.conduct()
        return _answer(nodes, result, asked_at)


def _answer(nodes: tuple[str, ...], result: AttemptResult, asked_at: float) -> Answer:
    ranks: dict[str, list[Mapping[str, Json]]] = {}
    steps: dict[str, float] = {}
    for rank in result.ranks:
        if rank.measurement is not None:
            ranks.setdefault(rank.node, []).append(rank.measurement.extra)
            steps[rank.node] = max(steps.get(rank.node, 0.0), min(rank.measurement.step_times_s, default=0.0))
    fine = result.diagnosis.outcome is Outcome.OK
    problem = "" if fine else f"{result.diagnosis.outcome}: {(result.message or '').strip()}"[:400]
    return Answer(
        nodes=nodes,
        ranks=ranks if fine else {},
        steps_s=steps if fine else {},
        problem=problem,
        accused=() if fine else result.accused,
        asked_at=asked_at,
        answered_at=time.time(),
    )
