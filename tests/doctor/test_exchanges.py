"""The search for what makes an exchange fail, on networks whose defect is known."""

import asyncio
import json

import pytest

from sweep.checks.pairs import halves
from sweep.doctor.exchanges import Exchanges
from sweep.doctor.request import Answers
from sweep.pilot.leader.check_attempts import Answer
from sweep.pilot.leader.link import Link
from tests.support.pilot_parts import Mute, spec


class Network:
    """Attempts that fail where two of their nodes do not reach each other."""

    def __init__(self, reach):
        self._reach, self.groups = reach, []

    async def conduct(self, _workload, links, _ranks, _params):
        nodes = tuple(link.node for link in links)
        self.groups.append(nodes)
        fine = all(self._reach(a, b) for a in nodes for b in nodes)
        row = {"operation": "all_reduce", "bytes": 1024, "least_s": 1.0, "ranks": len(nodes)}
        ranks = {node: [{"exchange": [row]}] for node in nodes}
        return Answer(ranks=ranks if fine else {}, problem="" if fine else "hang")


def guilty(tmp_path, reach, domains):
    """The nodes that are named, by every node of these domains, in turn."""
    names = [f"{domain}{number}" for number in range(4) for domain in domains]
    stated = tuple(f"{domain}[0-3]" for domain in domains)
    answers, network = Answers(tmp_path), Network(reach)
    links = [Link(name, Mute()) for name in names]
    made = Exchanges(network, answers, spec(executor="slurm", gpu="cpu", domain_nodes=stated), links)
    asyncio.run(made.all_nodes())
    found = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    return {node: one["why"] for one in found if one["kind"] == "guilty" for node in one["nodes"]}, network.groups


@pytest.mark.parametrize("cut", ["a", "b", "c"])
def test_a_domain_that_reaches_only_itself_is_named_and_no_other(tmp_path, cut):
    found, _ = guilty(tmp_path, lambda a, b: (a[0] == cut) == (b[0] == cut), "abc")
    assert sorted(found) == [f"{cut}{number}" for number in range(4)]
    assert set(found.values()) == {"hang; the nodes of its domain reach each other, but no other domain"}


def test_a_node_of_a_domain_stays_a_node_and_groups_are_of_one_domain_first(tmp_path):
    found, groups = guilty(tmp_path, lambda a, b: "b2" not in (a, b) or a == b, "abcd")
    assert sorted(found) == ["b2"]
    assert {len({node[0] for node in group}) for group in groups[:8]} == {1}
    domains = {node: node[0] for node in ("a0", "a1", "a2", "b0", "c0")}
    assert halves(("a0", "a1", "a2", "b0", "c0"), domains) == (("a0", "a1", "a2"), ("b0", "c0"))
    assert halves(("a0", "b0", "a1", "c0"), {}) == (("a0", "b0"), ("a1", "c0")), "not known"


@pytest.mark.parametrize("domains", ["ab", "abcd"])
def test_domains_none_of_which_reaches_another_are_a_defect_of_the_network_and_none_is_named(tmp_path, domains):
    found, _ = guilty(tmp_path, lambda a, b: a[0] == b[0], domains)
    assert found == {}
