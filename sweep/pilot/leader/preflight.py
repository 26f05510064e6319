"""Checks of a pilot's nodes before its first run, while their zygotes start. Unfit nodes are left out."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence

from sweep.checks.check import Check, CheckResult, NodeReadings, Reading, Stated, applicable, readers
from sweep.checks.fleet import evaluate_all
from sweep.checks.node import NODE
from sweep.errors import log_error
from sweep.pilot.leader.link import Link
from sweep.pilot.messages import Inspect
from sweep.pilot.order import PilotOrder
from sweep.plugins import find_workload, found_checks
from sweep.search.search import Choice
from sweep.state.events import NodeBad

LIMIT_S = {"quick": 4.0, "node": 25.0}
"""of each reader; all run at once"""
PATIENCE_S = 1.0
"""beyond that, for the messages: a node that still did not answer is not accused, its connection is watched"""


class Preflight:
    """The checks of one pilot: begun when its nodes have joined, evaluated before its first run."""

    def __init__(self, order: PilotOrder) -> None:
        self._order = order
        self._asked: list[Link] = []
        self._asked_at = 0.0
        self._checks: list[Check] = []

    def begin(self, links: Sequence[Link], first: Choice | None) -> None:
        """Ask all nodes, if there is a run for them; their zygotes start meanwhile."""
        if self._order.preflight == "off" or first is None:
            return
        run = first.planned.run()
        self._checks = checks_of(self._order)
        self._asked, self._asked_at = list(links), time.time()
        message = Inspect(
            readers=tuple(readers(self._checks)),
            limit_s=LIMIT_S[self._order.preflight],
            preload=tuple(find_workload(run.workload).preload),
            env=dict(run.env),
            ranks=run.gpus_per_node,
        )
        for link in self._asked:
            link.send(message)

    async def unfit(self, links: Sequence[Link]) -> list[NodeBad]:
        """Wait for the answers; an event for each node that must not be used."""
        if not self._asked:
            return []
        deadline_s = LIMIT_S[self._order.preflight] + PATIENCE_S
        waits = [asyncio.ensure_future(link.inspected.wait()) for link in self._asked]
        await asyncio.wait(waits, timeout=max(0.0, self._asked_at + deadline_s - time.time()))
        for wait in waits:
            wait.cancel()
        now = time.time()
        answers = [
            NodeReadings(node=link.node, readings=readings_in(link.readings), asked_at=self._asked_at, answered_at=now)
            for link in self._asked
            if link.readings is not None and link in links
        ]
        stated = Stated(gpu=self._order.gpu or "cpu", gpus_per_node=self._order.gpus_per_node)
        found = [one for one in evaluate_all(self._checks, answers, stated) if one.finding.verdict.unfit]
        reasons = reasons_to_exclude(found, self._checks, len(answers))
        return [
            NodeBad(time=now, pilot=self._order.name, node=node, reason=f"preflight: {reason}")
            for node, reason in reasons.items()
        ]


def checks_of(order: PilotOrder) -> list[Check]:
    """The checks that the order asks for, of other packages too."""
    every = [*NODE, *(check for check in found_checks() if check.tier == "node")]
    chosen = [check for check in every if check.quick or order.preflight == "node"]
    return applicable(chosen, Stated(gpu=order.gpu or "cpu"))


def readings_in(text: str | None) -> dict[str, Reading]:
    """An agent's readings; none where they are malformed."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return {str(reader): Reading.of(value) for reader, value in found.items()} if isinstance(found, dict) else {}


def reasons_to_exclude(found: Sequence[CheckResult], checks: Sequence[Check], nodes: int) -> dict[str, str]:
    """Node -> why. What is wrong on all nodes is how the cluster is set up: reported, and no node is excluded."""
    of_site = {check.name for check in checks if check.of_site}
    reasons: dict[str, list[str]] = {}
    for name in dict.fromkeys(one.check for one in found):
        same = [one for one in found if one.check == name]
        if name in of_site and len(same) == nodes:
            finding = same[0].finding
            log_error(f"all {nodes} nodes: {name}: {finding.found}, expected {finding.expected}. {same[0].remedy}")
            continue
        for one in same:
            text = f"{name}: {one.finding.found}, expected {one.finding.expected}"
            reasons.setdefault(one.node, []).append(text)
    return {node: "; ".join(texts) for node, texts in reasons.items()}
