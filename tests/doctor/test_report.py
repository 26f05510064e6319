"""The report: text, JSON; and answers of a pilot."""

import json

from sweep.checks.check import CheckResult, Finding, Stated, Verdict
from sweep.checks.speeds import accused_by_speed
from sweep.doctor.evaluation import evaluate_answers, nodes_of, pair_rows
from sweep.doctor.report import Report, groups, nodes_text, rows_of, summary
from tests.support.doctor.answers import exchange


def result(node, verdict=Verdict.OK, found="fine", check="memlock"):
    finding = Finding(verdict=verdict, found=found, expected="32 GiB")
    remedy = "" if verdict is Verdict.OK else "raise it"
    return CheckResult(check=check, tier="node", node=node, finding=finding, remedy=remedy)


def pair(one, two, rate):
    return {"nodes": [one, two], "send": rate, "all_reduce": rate, "problem": "" if rate else "hang"}


def report(**more):
    results = (result("n1"), result("n2", Verdict.BELOW_FLOOR, "4 kB <b>"), result("n3", Verdict.UNKNOWN, "not read"))
    pairs = (pair("n1", "n10", 5e10), pair("n2", "n1", 0.0), pair("n2", "n10", 2e10))
    values = {"nodes": ("n1", "n2", "n3"), "results": results, "pairs": pairs, "began_at": 1.7e9, **more}
    return Report(site="h100", gpu="h100", seconds={"node": 3.2}, **values)


def test_who_is_unfit_is_excluded_and_an_unreadable_sensor_is_not():
    found = report()
    assert found.exclude == {"n2": "memlock: 4 kB <b>, expected 32 GiB"}
    assert not found.fit
    assert summary(found) == "h100: unfit: 1 below floor, 1 unknown, 1 ok (node 3.2 s)"
    assert report(results=(result("n1"),)).fit
    assert not report(results=(result("n1"),), problem="the pilot's job ended").fit


def test_equal_findings_are_one_line_and_the_worst_is_first():
    found = groups([result("n1"), result("n2"), result("n3", Verdict.BELOW_FLOOR, "4 kB")])
    assert [(one.finding.verdict, nodes) for one, nodes in found] == [
        (Verdict.BELOW_FLOOR, ["n3"]),
        (Verdict.OK, ["n1", "n2"]),
    ]
    assert nodes_text(["n1", "n2"], 2) == "all 2"
    assert nodes_text([f"n{at}" for at in range(8)], 9) == "n0, n1, n2, n3, n4, n5 and 2 more"


def test_rows_have_every_column_and_can_be_written():
    columns = {"check", "tier", "node", "verdict", "found", "expected", "number", "remedy"}
    assert all(set(row) >= columns for row in rows_of(report()))
    assert json.loads(json.dumps(report().as_json()))["exclude"] == report().exclude


ANSWERS = [
    {"kind": "nodes", "nodes": ["n1", "n2", "n3"], "missing": ["n4"], "time": 0.0},
    {"kind": "readings", "tier": "node", "node": "n1", "readings": {"m:f": {"value": 1}}, "problem": ""},
    {"kind": "readings", "tier": "node", "node": "n2", "readings": None, "problem": "hang: no progress for 8 s"},
    {"kind": "guilty", "nodes": ["n3"], "group": ["n1", "n3"], "why": "hang"},
]


def test_answers_of_a_pilot_are_checked_without_running_anything():
    found = evaluate_answers(ANSWERS, [], report_stated())
    assert nodes_of(ANSWERS) == ["n1", "n2", "n3", "n4"]
    assert {(one.node, one.check) for one in found if one.finding.verdict is Verdict.NO_ANSWER} == {
        ("n4", "answers"), ("n2", "answers"), ("n3", "exchange"),
    }  # fmt: skip


def test_a_slow_node_of_pairs_is_named_and_its_partners_are_not():
    fast, slow = 2**30 / 47e9, 2**30 / 20e9
    rounds = [exchange(["a", "b"], fast), exchange(["c", "sick"], slow), exchange(["d", "e"], fast)]
    rounds += [exchange(["sick", "a"], slow), exchange(["c", "d"], fast), exchange(["b", "e"], fast)]
    found = evaluate_answers(rounds, [], report_stated())
    unfit = {(one.node, one.check) for one in found if one.finding.verdict.unfit}
    assert {node for node, _ in unfit} == {"sick"}
    assert ("sick", "pair send") in unfit
    assert len(pair_rows(rounds)) == 6


def rated(node, rate, problem=""):
    ranks = [{"memory_copy": {"per_second": rate}}] if rate else []
    return {"kind": "rates", "node": node, "ranks": ranks, "problem": problem}


def test_a_node_that_is_slower_than_the_others_is_named_by_the_best_of_its_times():
    """One that was slow once was disturbed; one that is slow each time is sick; one that fails does not answer."""
    once = [rated(node, 1e9 * rate) for node, rate in (("a", 1000), ("b", 1010), ("c", 990), ("d", 600), ("sick", 700))]
    once += [rated("e", None, "hang: no heartbeat")]
    assert set(accused_by_speed(once, Stated())) == {"d", "sick", "e"}
    assert accused_by_speed([*once, rated("e", 1e12)], Stated()) == ["d", "sick"], "a later answer counts"
    answers = [*once, rated("d", 995e9), rated("sick", 720e9)]
    assert set(accused_by_speed(answers, Stated())) == {"sick", "e"}
    unfit = {
        one.node: (one.check, one.tier, one.finding.found)
        for one in evaluate_answers(answers, [], Stated())
        if one.finding.verdict.unfit
    }
    assert unfit == {
        "sick": ("memory copy", "perf", "720 GB/s"), "e": ("answers", "perf", "hang: no heartbeat"),
    }  # fmt: skip
    found = {(one.node, one.check): one.finding for one in evaluate_answers(answers, [], Stated())}
    assert found["sick", "memory copy"].expected == "the nodes' median, 995 GB/s, less 5%"


def test_a_rate_above_the_adapters_is_impossible():
    found = evaluate_answers([exchange(["a", "b"], 2**30 / 60e9)], [], report_stated())
    assert {one.finding.verdict for one in found if one.check == "pair send"} == {Verdict.IMPOSSIBLE}


def report_stated():
    return Stated(gpu="h100", gpus_per_node=8)
