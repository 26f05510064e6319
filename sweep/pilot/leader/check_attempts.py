"""Runs checks on nodes of a pilot, each as an attempt like any other: same start, hang detection and clean-up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sweep.checks.check import Json
from sweep.contract import Layout, Run, Scalar, Workload
from sweep.outcomes import Outcome
from sweep.pilot.job_spec import Limits
from sweep.pilot.leader.attempt import AttemptRunner
from sweep.pilot.leader.attempt_state import AttemptResult
from sweep.pilot.leader.attempts import Attempts
from sweep.pilot.leader.link import Link

ATTEMPT_S = 240.0
"""the longest check as a whole"""
START_S = 120.0
"""longest start of a check's ranks: torch's import and the rendezvous"""
STEP_S = {True: 20.0, False: 8.0}
"""longest time between heartbeats, of which each timing has one. GPUs: four calls of 1 GiB at 0.2 GB/s; CPUs: 8 MiB;
healthy ones take a tenth of it"""
OPERATION_S = 30.0
"""longest operation of tier ``perf``: timings of 1.4 s in all, on a node that may have a tenth of its speed"""
FURTHER = 2
"""times that a slow node is measured again before it is accused"""


TORCH = ("torch", "torch.distributed", "bench_workloads.checks.rates", "bench_workloads.checks.exchange")
"""one fork server for both programs: a node imports torch once"""


def workload(name: str, *, torch: bool) -> Workload:
    """The declaration of one of the checks' programs; those with torch have a rendezvous."""
    module = f"bench_workloads.checks.{name}"
    preload = TORCH if torch else (module,)
    return Workload(name="checks", main=f"{module}:main", axes=frozenset({"dp"}), preload=preload, takes_listener=torch)


READ = workload("reading", torch=False)
RATES = workload("rates", torch=True)
EXCHANGE = workload("exchange", torch=True)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The result of one attempt."""

    ranks: Mapping[str, Sequence[Mapping[str, Json]]] = field(default_factory=dict)
    """node -> the further values of each of its ranks' measurements; complete or empty"""
    problem: str = ""
    accused: tuple[str, ...] = ()
    asked_at: float = 0.0
    answered_at: float = 0.0


class CheckAttempts:
    """Conducts attempts, a few at a time."""

    def __init__(self, gpu: str, at_once: int, attempts: Attempts | None = None) -> None:
        """``attempts``: those of the pilot, with which these are stopped."""
        self._gpu = gpu
        self._step_s = STEP_S[gpu != "cpu"]
        self._attempts = attempts
        self._turn = asyncio.Semaphore(at_once)
        self._number = 0

    async def conduct(
        self,
        program: Workload,
        links: Sequence[Link],
        ranks_per_node: int,
        params: Mapping[str, Scalar],
        step_s: float | None = None,
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
        step_s = step_s or self._step_s
        self._number += 1
        limits = Limits(start_s=START_S, first_iteration_s=step_s, steady_s=step_s, attempt_s=ATTEMPT_S)
        async with self._turn:
            asked_at = time.time()
            lost = [link.node for link in links if not link.alive or not link.clean]
            if lost:
                text = f"the connection to {', '.join(lost)} is lost, or the node could not be cleared"
                return Answer(problem=text, accused=tuple(lost))
            name = f"check.{self._number}"
            runner = AttemptRunner(name, run, program, links, limits, 0, self._gpu)
            result = await (self._attempts.follow(name, runner) if self._attempts else runner.conduct())
        return _answer(result, asked_at)


def _answer(result: AttemptResult, asked_at: float) -> Answer:
    ranks: dict[str, list[Mapping[str, Json]]] = {}
    for rank in result.state.ranks:
        if rank.measurement is not None:
            ranks.setdefault(rank.node, []).append(rank.measurement.extra)
    fine = result.diagnosis.outcome is Outcome.OK
    problem = "" if fine else f"{result.diagnosis.outcome}: {(result.message or '').strip()}"[:400]
    return Answer(
        ranks=ranks if fine else {},
        problem=problem,
        accused=() if fine else result.accused,
        asked_at=asked_at,
        answered_at=time.time(),
    )


async def measure_rates(attempts: CheckAttempts, link: Link, ranks: int) -> dict[str, Json]:
    """Tier ``perf`` on one node: its answer of kind "rates", for ``sweep.checks.speeds``."""
    answer = await attempts.conduct(RATES, [link], ranks, {}, OPERATION_S)
    rates = [extra.get("rates") for extra in answer.ranks.get(link.node, [])]
    return {"node": link.node, "ranks": rates, "problem": answer.problem}


async def until_sure(
    measure: Callable[[Link], Awaitable[None]], links: Sequence[Link], slow: Callable[[], Sequence[str]]
) -> None:
    """Measure every node, and those that are slow by what is known then, further times."""
    await asyncio.gather(*(measure(link) for link in links))
    for _ in range(FURTHER):
        again = slow()
        await asyncio.gather(*(measure(link) for link in links if link.node in again))
