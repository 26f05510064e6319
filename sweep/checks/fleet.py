"""All nodes together: the majority's software, the median's speed, nodes to exclude. Pure."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sweep.checks.check import (
    WHETHER_GPUS,
    Check,
    CheckResult,
    Finding,
    NodeReadings,
    Stated,
    Verdict,
    applicable,
    evaluate,
    result,
)
from sweep.checks.rules import quantity
from sweep.physics.statistics import MAD_FACTOR

TOLERANCE = 0.05
"""below the median by more than this is a defect (SuperBench)"""
ROBUST_Z = 5.0
"""and by this many robust standard deviations of the nodes: where healthy nodes vary, so may this one"""
FEWEST = 3
"""with fewer nodes there is neither majority nor median to compare with"""
LEAST = 1e-9
"""in place of zero, which has no logarithm"""


def evaluate_all(checks: Sequence[Check], answers: Sequence[NodeReadings], stated: Stated) -> list[CheckResult]:
    """Every check on every node. A node that did not answer fails; of one without GPUs only that is said."""
    found: list[CheckResult] = []
    for check in applicable(checks, stated):
        findings = {
            one.node: evaluate(
                check,
                one.readings.get(check.reader),
                replace(stated, nodes=len(answers), asked_at=one.asked_at, answered_at=one.answered_at),
            )
            for one in answers
            if not one.problem
        }
        if check.majority:
            findings = against_majority(findings, remark=check.remark)
        if check.median:
            findings = against_median(findings, check.median)
        found += [result(check.name, check.tier, node, finding, check.remedy) for node, finding in findings.items()]
    bare = {one.node for one in found if one.check == WHETHER_GPUS and one.finding.verdict.unfit}
    of_gpus = {check.name for check in checks if check.gpu_only} - {WHETHER_GPUS}
    found = [one for one in found if one.node not in bare or one.check not in of_gpus]
    return [*(no_answer(one.node, one.problem) for one in answers if one.problem), *found]


def no_answer(node: str, problem: str) -> CheckResult:
    """The result for a node that did not answer: unfit, as in Primus' node smoke test."""
    finding = Finding(verdict=Verdict.NO_ANSWER, found=problem, expected="an answer in time")
    remedy = "look at the node: `scontrol show node`, its kernel log; exclude it until it answers"
    return result("answers", "node", node, finding, remedy)


def against_majority(findings: Mapping[str, Finding], *, remark: bool = False) -> dict[str, Finding]:
    """Who differs from what more than half of the readable nodes have; without a majority all are warned of.

    ``remark``: who differs is warned of, too.
    """
    counts = Counter(one.found for one in findings.values() if one.verdict is Verdict.OK)
    if len(counts) < 2:
        return dict(findings)
    most, number = counts.most_common(1)[0]
    clear = 2 * number > counts.total() and counts.total() >= FEWEST
    verdict = Verdict.DIFFERS if clear and not remark else Verdict.WARNING
    expected = f"{most} ({number} of {counts.total()} nodes)"
    return {
        node: replace(one, verdict=verdict, expected=expected)
        if one.verdict is Verdict.OK and (one.found != most or not clear)
        else one
        for node, one in findings.items()
    }


def against_median(findings: Mapping[str, Finding], unit: str) -> dict[str, Finding]:
    """Who is slower than the other nodes. Higher numbers are better."""
    numbers = {node: number for node, one in findings.items() if (number := one.number) is not None}
    slow = slow_nodes(numbers)
    if not slow:
        return dict(findings)
    expected = f"the nodes' median, {quantity(statistics.median(numbers.values()), unit)}, less {TOLERANCE:.0%}"
    slower = {node: replace(findings[node], verdict=Verdict.BELOW_MEDIAN, expected=expected) for node in slow}
    return {node: slower.get(node, one) if one.verdict is Verdict.OK else one for node, one in findings.items()}


def slow_nodes(numbers: Mapping[str, float]) -> list[str]:
    """The nodes below the median by more than the tolerance and by more than the nodes' own variation."""
    if len(numbers) < FEWEST:
        return []
    limit = slowest_healthy(list(numbers.values()))
    return [node for node, number in numbers.items() if number < limit]


def slowest_healthy(numbers: Sequence[float], tolerance: float = TOLERANCE) -> float:
    """Below the median of these by the tolerance, or by their own variation where that is more.

    Of logarithms: rates vary by factors, and where they vary by an eighth, no rate above zero is five standard
    deviations below their median.
    """
    logarithms = [math.log(max(number, LEAST)) for number in numbers]
    median = statistics.median(logarithms)
    deviation = statistics.median(abs(number - median) for number in logarithms)
    return math.exp(median - max(-math.log1p(-tolerance), ROBUST_Z * MAD_FACTOR * deviation))


def to_exclude(results: Iterable[CheckResult]) -> dict[str, str]:
    """Node -> why it must not be measured."""
    why: dict[str, list[str]] = {}
    for one in results:
        if one.finding.verdict.unfit and one.node:
            text = f"{one.check}: {one.finding.found}" + (
                f", expected {one.finding.expected}" if one.finding.expected else ""
            )
            why.setdefault(one.node, []).append(text)
    return {node: "; ".join(texts) for node, texts in sorted(why.items())}
