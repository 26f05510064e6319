"""From the pilot's answers to results: each tier evaluated, all nodes together. Pure: a report can be made again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sweep.checks.check import Check, CheckResult, Finding, Json, NodeReadings, Reading, Stated, Verdict, result
from sweep.checks.expectation import NOTHING, Expectation, adapter, all_reduce
from sweep.checks.fleet import evaluate_all, no_answer
from sweep.checks.pairs import MESSAGE_BYTES, TOLERANCES, Exchange, Group, best_rates, rate_of, slow_in_pairs
from sweep.checks.rules import number_of, quantity
from sweep.checks.speeds import Answer, against, evaluate_speeds

PAIR_REMEDY = "check this node's adapters, cables and switch port; run `sweep doctor --tier pair` again"
ALL_NODES_REMEDY = "exclude the node; look at its agent's output, kernel log and adapters"


def nodes_of(answers: Iterable[Answer]) -> list[str]:
    """All nodes of the pilot, those that never answered too."""
    return [node for one in answers if one["kind"] == "nodes" for name in ("nodes", "missing") for node in one[name]]


def evaluate_answers(answers: Sequence[Answer], checks: Sequence[Check], stated: Stated) -> list[CheckResult]:
    """Every tier's results."""
    missing = [node for one in answers if one["kind"] == "nodes" for node in one["missing"]]
    results = [no_answer(node, "its agent did not start, or could not connect") for node in missing]
    readings = [readings_of(one) for one in answers if one["kind"] == "readings"]
    if readings:
        results += evaluate_all(checks, readings, stated)
    found = evaluate_speeds(answers, stated)
    results += [replace(one, tier="perf") if one.check == "answers" else one for one in found]
    exchanges = exchanges_of(answers)
    guilty = {node: one["why"] for one in answers if one["kind"] == "guilty" for node in one["nodes"]}
    results += evaluate_pairs([one for one in exchanges if one.tier == "pair"], stated)
    results += evaluate_all_nodes([one for one in exchanges if one.tier == "all-nodes"], guilty, stated)
    return results


def readings_of(answer: Answer) -> NodeReadings:
    """One node's readings."""
    readings = {name: Reading.of(value) for name, value in (answer["readings"] or {}).items()}
    return NodeReadings(
        node=answer["node"],
        readings=readings,
        problem=answer["problem"] or ("" if readings else "no reading arrived"),
        asked_at=answer.get("asked_at"),
        answered_at=answer.get("answered_at"),
    )


def exchanges_of(answers: Iterable[Answer]) -> list[Exchange]:
    """The exchanges of groups of nodes."""
    stated = ({**one, "nodes": tuple(one["nodes"])} for one in answers if one["kind"] == "exchange")
    return [Exchange(**{name: one[name] for name in one if name != "kind"}) for one in stated]


def evaluate_pairs(exchanges: Sequence[Exchange], stated: Stated) -> list[CheckResult]:
    """Each node by the better of its rounds; a node whose every exchange failed did not answer."""
    results = []
    measured = {row.get("operation") for one in exchanges for row in one.rows}
    for operation, tolerance in TOLERANCES.items():
        if measured and operation not in measured:
            continue
        slow = slow_in_pairs(exchanges, operation)
        for node, rate in best_rates(exchanges, operation).items():
            finding = _of_pair(operation, rate, _expected(operation, stated, exchanges))
            if not rate:
                why = next(one.problem for one in exchanges if node in one.nodes and one.problem)
                finding = Finding(verdict=Verdict.NO_ANSWER, found=why, expected="an exchange with a second node")
            elif node in slow and finding.verdict is Verdict.OK:
                usual = _of_pair(operation, slow[node], NOTHING).found
                expected = f"{usual}, the median of pairs without it, by {tolerance:.0%}"
                finding = replace(finding, verdict=Verdict.BELOW_MEDIAN, expected=expected)
            results.append(result(f"pair {operation}", "pair", node, finding, PAIR_REMEDY))
    return results


def _of_pair(operation: str, rate: float, expected: Expectation) -> Finding:
    """A rate as a rate, and that of small messages as the time of one."""
    if operation == "message":
        shown = f"{MESSAGE_BYTES / rate * 1e6:.0f} us" if rate else ""
        return Finding(verdict=Verdict.OK, found=shown, number=rate)
    return against(rate, expected, "B/s")


def _expected(operation: str, stated: Stated, exchanges: Sequence[Exchange]) -> Expectation:
    if operation == "message":
        return NOTHING
    if operation == "send":
        return adapter(stated.gpu)
    sizes = [number_of(row, "bytes") for one in exchanges for row in one.rows if row.get("operation") == operation]
    return all_reduce(stated.gpu, 2, stated.gpus_per_node, max(sizes, default=2.0**30))


def evaluate_all_nodes(exchanges: Sequence[Exchange], named: Mapping[str, str], stated: Stated) -> list[CheckResult]:
    """A result for each width and operation, on the nodes of its slowest group; and for each guilty node."""
    results = []
    for node, why in named.items():
        finding = Finding(verdict=Verdict.NO_ANSWER, found=why, expected="an exchange with every node")
        results.append(result("exchange", "all-nodes", node, finding, ALL_NODES_REMEDY))
    for one in sorted(exchanges, key=lambda one: len(one.nodes)):
        results += [_of_nodes(one.nodes, row, stated) for row in one.rows if not one.problem]
    return results


def _of_nodes(nodes: Group, row: Mapping[str, Json], stated: Stated) -> CheckResult:
    operation, size = str(row.get("operation")), number_of(row, "bytes")
    reduced = operation == "all_reduce"
    expected = all_reduce(stated.gpu, len(nodes), stated.gpus_per_node, size) if reduced else NOTHING
    finding = against(rate_of(row), expected, "B/s")
    # A slow group accuses no node: pairs do that
    if finding.verdict is Verdict.BELOW_FLOOR:
        finding = replace(finding, verdict=Verdict.WARNING)
    name = f"{operation} of {quantity(size, 'B')} on {len(nodes)} nodes"
    remedy = "compare with the pairs; see the topology of these nodes"
    return result(name, "all-nodes", ", ".join(nodes), finding, remedy)


def pair_rows(answers: Iterable[Answer]) -> list[dict[str, Json]]:
    """A row per exchanging pair."""
    return [
        {
            "nodes": list(one.nodes),
            "send": one.bytes_per_s("send"),
            "all_reduce": one.bytes_per_s("all_reduce"),
            "problem": one.problem,
        }
        for one in exchanges_of(answers)
        if one.tier == "pair"
    ]
