"""The leader of a doctor's pilot: starts the agents, goes through the tiers, and writes what the nodes answer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from sweep.checks.check import Stated
from sweep.checks.speeds import accused_by_speed
from sweep.doctor.exchanges import Exchanges
from sweep.doctor.request import Answers, Request
from sweep.errors import log_error
from sweep.inputs.topology import hosts
from sweep.pilot.clock import PausingClock
from sweep.pilot.job_spec import JobSpec
from sweep.pilot.leader.check_attempts import READ, CheckAttempts, measure_rates, until_sure
from sweep.pilot.leader.clearing import OrphanClearing
from sweep.pilot.leader.link import Link, one_machine
from sweep.pilot.leader.nodes import agents
from sweep.pilot.leader.start import lead_once


class DoctorLeader:
    """One pilot's run through the tiers."""

    def __init__(self, folder: Path, spec: JobSpec) -> None:
        self._folder, self._spec, self._request = folder, spec, Request.read(folder)
        self._answers = Answers(folder)
        self._gpu = spec.gpu or "cpu"

    async def lead(self) -> None:
        """All tiers, then release the nodes."""
        me = asyncio.current_task()
        assert me is not None
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
            asyncio.get_running_loop().add_signal_handler(number, me.cancel)
        directory = self._folder / "pilots" / self._spec.name
        orphans = OrphanClearing(self._spec, directory)
        async with agents(self._spec, directory, PausingClock()) as nodes:
            await nodes.arrive()
            links = nodes.links
            orphans.watch(links)
            expected = [f"local-{index}" for index in range(self._spec.nodes)]
            if self._spec.executor != "local":  # the names of all nodes, also of those that never connect
                expected = []
                with contextlib.suppress(ValueError):
                    expected = hosts(os.environ.get("SLURM_JOB_NODELIST", ""))
            missing = sorted(set(expected) - {link.node for link in links})
            missing = missing[: self._spec.nodes - len(links)]
            self._answers.write("nodes", nodes=[link.node for link in links], missing=missing, time=time.time())
            for tier in self._request.tiers:
                began = time.monotonic()
                await self._tier(tier, [link for link in nodes.links if link.alive and link.clean])
                self._answers.write("tier", tier=tier, seconds=round(time.monotonic() - began, 1))
            await orphans.end(at_once=False)
        self._answers.write("end", problem="")

    async def _tier(self, tier: str, links: Sequence[Link]) -> None:
        shared = one_machine(links)
        attempts = CheckAttempts(self._gpu, 1 if shared else len(links) or 1)
        if tier == "node":
            # Nodes of one machine share its cores; those of a cluster do not wait for each other
            attempts = CheckAttempts(self._gpu, max(1, (os.cpu_count() or 1)) if shared else len(links) or 1)
            await asyncio.gather(*(self._read(attempts, link) for link in links))
        elif tier == "perf":
            stated = Stated(gpu=self._gpu, gpus_per_node=self._spec.gpus_per_node, nodes=len(links))
            await until_sure(
                partial(self._measure, attempts), links, lambda: accused_by_speed(self._answers.read(), stated)
            )
        else:
            exchanges = Exchanges(attempts, self._answers, self._spec, links)
            await (exchanges.pairs() if tier == "pair" else exchanges.all_nodes())

    async def _read(self, attempts: CheckAttempts, link: Link) -> None:
        params = {"readers": ",".join(self._request.readers)}
        answer = await attempts.conduct(READ, [link], 1, params)
        extras = answer.ranks.get(link.node, [{}])
        self._answers.write(
            "readings",
            tier="node",
            node=link.node,
            readings=extras[0].get("readings"),
            problem=answer.problem,
            asked_at=answer.asked_at,
            answered_at=answer.answered_at,
        )

    async def _measure(self, attempts: CheckAttempts, link: Link) -> None:
        self._answers.write("rates", **await measure_rates(attempts, link, self._spec.gpus_per_node))


async def _lead(folder: Path, spec: JobSpec, _job_id: str) -> None:
    try:
        await DoctorLeader(folder, spec).lead()
    except asyncio.CancelledError:
        log_error("ended by a signal")
        Answers(folder).write("end", problem="the pilot was ended by a signal")


def main(directory: str, pilot: str) -> None:
    """Lead the doctor's pilot. Called in the batch job, or as a process of its own."""
    folder = Path(directory)
    lead_once(folder / "pilots" / pilot, partial(_lead, folder))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
