"""Verdicts on one node and against the others: majority, median, nodes to exclude."""

from dataclasses import replace

import pytest

from sweep.checks.check import Check, CheckResult, NodeReadings, Reading, Stated, Verdict, evaluate
from sweep.checks.expectation import NOTHING, Expectation
from sweep.checks.fleet import evaluate_all, slow_nodes, to_exclude
from sweep.checks.node import NODE
from sweep.checks.rules import at_least, shown
from sweep.checks.speeds import against

CPU = Stated()


def node_check(name):
    (check,) = [check for check in NODE if check.name == name]
    return check


def nodes(**values):
    return [NodeReadings(node=name, readings={"r": Reading(value=value)}) for name, value in values.items()]


def check(evaluate_, **more):
    return Check(name="c", tier="node", reader="r", evaluate=evaluate_, remedy="mend it", **more)


def verdicts(results: list[CheckResult]):
    return {one.node: one.finding.verdict for one in results}


def test_a_number_against_floor_and_bound():
    found = [against(rate, Expectation(bound=20.0, expected=10.0), "B").verdict for rate in (8.5, 8.4, 20.0)]
    assert found == [Verdict.OK, Verdict.BELOW_FLOOR, Verdict.IMPOSSIBLE]
    assert against(4.5e11, NOTHING, "B/s").found == "450 GB/s"


def test_what_was_not_read_or_is_no_number_is_unknown():
    rule = check(at_least(1.0, "s"))
    for reading in (
        None,
        Reading(error="no answer within 15 s"),
        Reading(value="x"),
        Reading(value=float("nan")),
        Reading(value=None),
    ):
        assert evaluate(rule, reading, CPU).verdict is Verdict.UNKNOWN


def test_the_node_that_differs_from_the_majority_is_named_and_no_other():
    versions = {f"n{i}": {"torch": "2.13.0"} for i in range(8)} | {"n3": {"torch": "2.9.1"}}
    found = verdicts(evaluate_all([check(shown, majority=True)], nodes(**versions), CPU))
    assert [name for name, verdict in found.items() if verdict is Verdict.DIFFERS] == ["n3"]
    assert set(found.values()) == {Verdict.OK, Verdict.DIFFERS}


@pytest.mark.parametrize("values", [{"a": 1, "b": 2}, {"a": 1, "b": 1, "c": 2, "d": 2}])
def test_without_a_majority_no_node_is_accused(values):
    assert set(verdicts(evaluate_all([check(shown, majority=True)], nodes(**values), CPU)).values()) == {
        Verdict.WARNING
    }


def test_a_node_that_did_not_answer_fails_and_is_excluded_with_the_reason():
    answers = [*nodes(a=1.0, b=1.0), NodeReadings(node="c", problem="no agent started there")]
    found = evaluate_all([check(at_least(0.5, "s"))], answers, CPU)
    assert verdicts(found) == {"a": Verdict.OK, "b": Verdict.OK, "c": Verdict.NO_ANSWER}
    assert to_exclude(found) == {"c": "answers: no agent started there, expected an answer in time"}


@pytest.mark.parametrize(("numbers", "slow"), [
    ([100, 101, 99, 100, 100, 102, 98, 50], [7]),
    ([100, 101, 99, 100, 100, 102, 98, 94], []),  # within the nodes' own variation
    ([100, 100, 100, 100, 94], [4]),
    ([100, 100, 100, 100, 96], []),  # within the tolerance
    ([100, 10], []),  # no median of two
    ([100, 60, 140, 80, 120, 55], []),  # nodes that differ this much allow no accusation
    ([100, 115, 85, 110, 90, 15], [5]),  # rates vary by factors: no difference is 7.4 times 12 % of the median
    ([100, 100, 100, 0], [3]),
])  # fmt: skip
def test_a_slow_node_is_below_the_tolerance_and_below_the_others_variation(numbers, slow):
    assert slow_nodes({str(at): float(number) for at, number in enumerate(numbers)}) == [str(at) for at in slow]


def test_the_median_is_shown_with_the_unit_of_the_finding():
    def rate(value, _):
        return against(float(value), NOTHING, "B/s")

    found = evaluate_all([check(rate, median="B/s")], nodes(a=100e9, b=101e9, c=99e9, d=50e9), CPU)
    (slow,) = [one for one in found if one.finding.verdict is Verdict.BELOW_MEDIAN]
    assert slow.node == "d"
    assert slow.finding.expected == "the nodes' median, 99.5 GB/s, less 5%"


@pytest.mark.parametrize(("bytes_", "gpu", "verdict"), [
    (None, "h100", Verdict.OK),
    (2**36, "h100", Verdict.OK),
    (8 * 2**20, "h100", Verdict.BELOW_FLOOR),
    (8 * 2**20, "cpu", Verdict.WARNING),
    (4096, "cpu", Verdict.BELOW_FLOOR),
])  # fmt: skip
def test_locked_memory(bytes_, gpu, verdict):
    assert evaluate(node_check("memlock"), Reading(value={"bytes": bytes_}), Stated(gpu=gpu)).verdict is verdict


@pytest.mark.parametrize(("free", "total", "kind", "verdict"), [
    (2**36, 2**37, "tmpfs", Verdict.OK),
    (2**30, 2**37, "tmpfs", Verdict.BELOW_FLOOR),
    (2**36, 2**37, "devtmpfs", Verdict.OK),
    (2**36, 2**37, "ext4", Verdict.BELOW_FLOOR),
    (2**26, 2**26, "tmpfs", Verdict.WARNING),
])  # fmt: skip
def test_shared_memory(free, total, kind, verdict):
    value = {"free_bytes": free, "total_bytes": total, "filesystem": kind}
    assert evaluate(node_check("shared memory"), Reading(value=value), CPU).verdict is verdict


@pytest.mark.parametrize(
    ("now", "verdict"),
    [(1000.0, Verdict.OK), (1031.0, Verdict.OK), (1040.0, Verdict.BELOW_FLOOR), (900.0, Verdict.BELOW_FLOOR)],
)
def test_a_clock_lies_between_question_and_answer(now, verdict):
    stated = replace(CPU, asked_at=995.0, answered_at=1002.0)
    assert evaluate(node_check("clock"), Reading(value=now), stated).verdict is verdict
    assert evaluate(node_check("clock"), Reading(value=now), CPU).verdict is Verdict.UNKNOWN


def test_half_of_the_cpus_by_a_quota_which_is_unknown_where_no_cgroup_is_mounted():
    value = {"allowed": 64, "online": 64, "quota_cpus": 32.0}
    found = evaluate(node_check("CPU quota"), Reading(value=value), CPU)
    assert (found.verdict, found.found) == (Verdict.BELOW_FLOOR, "32 of 64 CPUs")
    for cgroups, verdict in ((False, Verdict.UNKNOWN), (True, Verdict.OK)):
        without = Reading(value={**value, "cgroups": cgroups, "quota_cpus": None})
        assert evaluate(node_check("CPU quota"), without, CPU).verdict is verdict
        assert evaluate(node_check("CPUs"), without, CPU).verdict is Verdict.OK


@pytest.mark.parametrize(("gpu", "nodes", "verdict"), [
    ("cpu", 8, Verdict.WARNING), ("h100", 1, Verdict.WARNING), ("h100", 2, Verdict.BELOW_FLOOR),
])  # fmt: skip
def test_an_unused_ethernet_adapter_is_a_defect_only_where_nodes_need_rdma(gpu, nodes, verdict):
    files = {"state": "1: DOWN", "phys_state": "3: Disabled", "rate": "40 Gb/sec (4X QDR)", "link_layer": "Ethernet"}
    reading = Reading(value=[{"adapter": "mlx5_0", "port": 1, "files": files}])
    assert evaluate(node_check("adapters"), reading, Stated(gpu=gpu, nodes=nodes)).verdict is verdict


def test_checks_of_a_tier_have_names_of_their_own_and_remedies():
    assert len({one.name for one in NODE}) == len(NODE)
    assert not [one.name for one in NODE if not one.remedy]


def test_a_gpu_node_without_gpus_is_unfit_in_one_line_and_unknown_where_its_maker_is_another():
    readings = {check.reader: Reading(error="nvidia-smi is not installed here") for check in NODE if check.gpu_only}
    bare = [NodeReadings(node="n1", readings=readings | {node_check("GPU count").reader: Reading(value=False)})]
    of_gpus = [check for check in NODE if check.gpu_only]
    (found,) = evaluate_all(of_gpus, bare, Stated(gpu="h100", gpus_per_node=8))
    assert (found.check, found.finding.verdict.unfit) == ("GPUs", True)
    assert "none: nvidia-smi is not installed" in to_exclude([found])["n1"]
    assert not to_exclude(evaluate_all(of_gpus, bare, Stated(gpu="mi300x", gpus_per_node=8)))
