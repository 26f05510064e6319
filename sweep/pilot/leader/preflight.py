"""Checks of a pilot's nodes: before its first run, while their fork servers start, and of one that was slow in runs.

Unfit nodes are left out.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Container, Sequence
from dataclasses import replace

from sweep.checks.check import Check, CheckResult, NodeReadings, Reading, Stated, readers
from sweep.checks.fleet import FEWEST, evaluate_all, to_exclude
from sweep.checks.node import SMI, node_checks
from sweep.checks.speeds import Answer, accused_by_speed, evaluate_speeds
from sweep.checks.tools import fabric
from sweep.errors import log_error
from sweep.pilot.job_spec import JobSpec
from sweep.pilot.leader.attempts import Attempts
from sweep.pilot.leader.check_attempts import CheckAttempts, measure_rates, until_sure
from sweep.pilot.leader.link import Link, one_machine
from sweep.pilot.messages import Inspect
from sweep.plugins import CHECK, WORKLOAD
from sweep.search.search import Choice
from sweep.state.events import NodeBad, NodeFit

LIMIT_S = {"quick": 4.0, "node": 25.0, "perf": 25.0}
"""of each reader; all run at once"""
PATIENCE_S = 1.0
"""beyond that, for the messages: a node that still did not answer is not accused, its connection is watched"""

COMPARED = 4
"""free nodes that are measured too when one is checked that was slow in runs"""


class Preflight:
    """The checks of one pilot: begun when its nodes have joined, evaluated before its first run."""

    def __init__(self, spec: JobSpec, attempts: Attempts) -> None:
        self._spec = spec
        self._stated = Stated(gpu=spec.gpu or "cpu", gpus_per_node=spec.gpus_per_node)
        self._attempts = attempts
        self._asked: list[Link] = []
        self._asked_at = self._due_at = 0.0
        self._checks: list[Check] = []
        self.domains: dict[str, str] = {}
        """node -> the NVLink domain of its GPUs, where their driver says"""
        self._suspected: set[str] = set()
        """nodes whose speed was checked since they were slow in runs"""

    def begin(self, links: Sequence[Link], first: Choice | None) -> None:
        """Ask all nodes, if there is a run for them; their fork servers start meanwhile."""
        if self._spec.preflight == "off" or first is None:
            return
        run = first.planned.run()
        self._checks = checks_of(self._spec)
        self._asked, self._asked_at = list(links), time.time()
        self._due_at = time.monotonic() + LIMIT_S[self._spec.preflight] + PATIENCE_S
        message = Inspect(
            readers=tuple(readers(self._checks)),
            limit_s=LIMIT_S[self._spec.preflight],
            preload=tuple(WORKLOAD.find(run.workload).preload),
            env=dict(run.env),
            ranks=run.gpus_per_node,
        )
        for link in self._asked:
            link.send(message)

    async def unfit(self, links: Sequence[Link]) -> list[NodeBad]:
        """Wait for the answers; an event for each node that must not be used."""
        if not self._asked:
            return []
        waits = [asyncio.ensure_future(link.inspected.wait()) for link in self._asked]
        await asyncio.wait(waits, timeout=max(0.0, self._due_at - time.monotonic()))
        for wait in waits:
            wait.cancel()
        now = time.time()
        answers = [
            NodeReadings(node=link.node, readings=readings_in(link.readings), asked_at=self._asked_at, answered_at=now)
            for link in self._asked
            if link.readings is not None and link in links
        ]
        texts = {one.node: one.readings.get(SMI, Reading()).value for one in answers}
        self.domains = {
            node: domain for node, text in texts.items() if isinstance(text, str) and (domain := fabric(text))
        }
        found = [one for one in evaluate_all(self._checks, answers, self._stated) if one.finding.verdict.unfit]
        reasons = reasons_to_exclude(found, [check.name for check in self._checks if check.of_site], len(answers))
        if self._spec.preflight == "perf":
            fit = [link for link in links if link.alive and link.clean and link.node not in reasons]
            reasons |= await too_slow(fit, self._stated, self._attempts)
        return [
            NodeBad(time=time.time(), pilot=self._spec.name, node=node, reason=f"preflight: {reason}")
            for node, reason in reasons.items()
        ]

    def due(
        self, suspects: Container[str], links: Sequence[Link], busy: Container[str], usable: Sequence[Link]
    ) -> list[Link]:
        """A node that was slow in runs and does nothing now, first, and those to compare it with; empty: none."""
        idle = [link for link in links if link.alive and link.clean and link.node not in busy]
        new = (link for link in idle if link.node in suspects and link.node not in self._suspected)
        suspect, others = next(new, None), [link for link in usable if link.node not in suspects][:COMPARED]
        if self._spec.preflight == "off" or suspect is None or len(others) + 1 < FEWEST:
            return []
        return [suspect, *others]

    async def confirm(self, node: str, why: str, links: Sequence[Link]) -> list[NodeBad | NodeFit]:
        """Check the node, one of these, which was slow in runs; empty: that was not possible."""
        self._suspected.add(node)
        reasons = await too_slow(links, self._stated, self._attempts)
        if self._attempts.stopping is not None or not all(link.alive for link in links):
            return []
        self._suspected.discard(node)
        if node not in reasons:
            return [NodeFit(time=time.time(), pilot=self._spec.name, node=node)]
        reason = f"{why}; alone then {reasons[node]}"
        return [NodeBad(time=time.time(), pilot=self._spec.name, node=node, reason=reason)]


async def too_slow(links: Sequence[Link], stated: Stated, attempts: Attempts) -> dict[str, str]:
    """Node -> why, by tier ``perf``: as the doctor measures it, nodes of one machine one after the other."""
    answers: list[Answer] = []
    checks = CheckAttempts(stated.gpu, 1 if one_machine(links) else len(links) or 1, attempts)
    stated = replace(stated, nodes=len(links))

    async def measure(link: Link) -> None:
        answers.append({"kind": "rates", **await measure_rates(checks, link, stated.gpus_per_node)})

    await until_sure(measure, links, lambda: accused_by_speed(answers, stated))
    if attempts.stopping is not None:  # the job ends: what was stopped says nothing about its node
        return {}
    lost = {link.node for link in links if not link.alive}  # its connection is watched
    found = [one for one in evaluate_speeds(answers, stated) if one.finding.verdict.unfit]
    return reasons_to_exclude([one for one in found if one.node not in lost], ["answers"], len(links))


def checks_of(spec: JobSpec) -> list[Check]:
    """The checks that the job spec asks for, of other packages too."""
    every = node_checks(CHECK.every(), spec.gpu or "cpu")
    return [check for check in every if check.quick or spec.preflight in ("node", "perf")]


def readings_in(text: str | None) -> dict[str, Reading]:
    """An agent's readings; none where they are malformed."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return {str(reader): Reading.of(value) for reader, value in found.items()} if isinstance(found, dict) else {}


def reasons_to_exclude(found: Sequence[CheckResult], names: Sequence[str], nodes: int) -> dict[str, str]:
    """Node -> why. ``names``: checks of the site, which exclude no node where all nodes fail them: then it is how the
    cluster is set up.
    """
    for name in names:
        same = [one for one in found if one.check == name]
        if same and len(same) == nodes:
            finding = same[0].finding
            log_error(f"all {nodes} nodes: {name}: {finding.found}, expected {finding.expected}. {same[0].remedy}")
            found = [one for one in found if one.check != name]
    return to_exclude(found)
