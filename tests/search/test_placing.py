"""On which of the free nodes a run goes, by the cluster's topology."""

import dataclasses
import heapq
import itertools
import random
from collections import Counter

import pytest

from sweep.inputs.topology import Spot
from sweep.physics.groups import PLACEMENT, nodes_together, split
from sweep.physics.hardware import GPUS
from sweep.planning.runs import PlannedRun
from sweep.search.placing import FLAT, Tree
from sweep.search.search import Search, choose
from sweep.state.state import SweepState
from tests.support.made_events import recorded
from tests.support.made_events import started as begun
from tests.support.placed import planned

NONE = Counter()


def racks(*sizes, leaves=1):
    """Nodes in domains of these sizes, each of some leaf switches, under one spine for every two domains."""
    found = {}
    for rack, size in enumerate(sizes):
        for number in range(size):
            leaf = f"leaf{rack}.{number * leaves // size}"
            found[f"r{rack}n{number:02}"] = Spot(f"rack{rack}", ("core", f"spine{rack // 2}", leaf))
    return found


def drawn(generator):
    """A cluster: trees of one to three levels, domains or none, holes, nodes without a switch or a domain."""
    found = racks(*generator.choices((1, 3, 8, 9, 18), k=generator.randint(1, 6)), leaves=generator.choice((1, 2, 3)))
    depth, domains = generator.randint(0, 3), generator.random() < 0.8
    across = generator.random() < 0.2  # domains that are not nested in switches
    for number, (node, spot) in enumerate(list(found.items())):
        domain = f"d{number % 3}" if across else spot.domain
        alone = generator.random() < 0.05
        switches = () if alone or not depth else spot.switches[-depth:]
        found[node] = Spot(domain if domains and generator.random() < 0.97 else None, switches)
    return {node: spot for node, spot in found.items() if generator.random() < 0.95}


def parts(topology, nodes):
    """The domain of each node; one whose domain is not known is alone."""
    return [topology.get(node, Spot()).domain or node for node in nodes]


def contiguous(units):
    return len(list(itertools.groupby(units))) == len(set(units))


def fits_whole(topology, free, count, together):
    return sum(n // together * together for n in Counter(parts(topology, free)).values()) >= count


def test_groups_stay_whole_wherever_that_is_possible_in_any_cluster():
    """No split that could be avoided, in the fewest domains where one holds all, neighbours in rank order are near."""
    generator, kept, cut = random.Random(45), 0, 0
    for _ in range(1500):
        topology = drawn(generator)
        names = list(topology)
        free = [name for name in names if generator.random() < 0.8]
        together = generator.choice((1, 1, 2, 3, 4, 8))
        count = together * generator.randint(1, 8)
        tree, domains = Tree(topology), any(spot.domain for spot in topology.values())
        found = tree.choose(free, free, count, (together, 1), NONE, reject_split=True)
        if found is None:
            assert len(free) < count or (domains and not fits_whole(topology, free, count, together))
            found = tree.choose(free, free, count, (together, 1), NONE, reject_split=False)
            cut += found is not None
            waiting = tree.choose(free, names, count, (together, 1), NONE, reject_split=False) is None
            assert waiting is (len(free) < count or fits_whole(topology, names, count, together)), "for busy nodes"
        if found is None:
            assert len(free) < count
            continue
        assert len(found) == len(set(found)) == count
        assert set(found) <= set(free)
        if not domains:
            continue
        of = parts(topology, found)
        blocks = [set(of[at : at + together]) for at in range(0, count, together)]
        whole = sum(n // together for n in Counter(parts(topology, free)).values())
        assert sum(len(block) == 1 for block in blocks) >= min(whole, count // together), "as few split as possible"
        if fits_whole(topology, free, count, together):
            assert contiguous(of)
            kept += 1
        if max(Counter(parts(topology, free)).values(), default=0) >= count:
            assert len(set(of)) == 1
    assert kept > 300
    assert cut > 50


def test_the_smallest_domain_that_holds_it_then_whole_ones_so_that_whole_ones_stay_free():
    topology = racks(18, 18, 4, 18)
    tree, free = Tree(topology), [name for name in topology if name not in ("r1n00", "r1n01")]

    def taken(count, together=1, names=free):
        return Counter(parts(topology, tree.choose(names, names, count, (together, 1), NONE, reject_split=False)))

    assert taken(3) == {"rack2": 3}
    assert taken(5) == {"rack1": 5}, "the rack that is not whole any more"
    assert taken(18) == {"rack0": 18}, "a whole one"
    assert taken(36) == {"rack0": 18, "rack3": 18}
    assert taken(40) == {"rack0": 18, "rack3": 18, "rack2": 4}
    assert taken(32, 16) == {"rack0": 16, "rack1": 16}, "under one spine, and the groups of 16 nodes whole"


def test_ranks_follow_domain_switch_and_node():
    topology = racks(6, 6, leaves=2)
    free = [name for name in topology if name != "r0n01"]
    random.Random(1).shuffle(free)
    free.sort(key=lambda name: (name[3:], name))  # nodes by number, racks in turn
    found = Tree(topology).choose(free, free, 10, (2, 1), NONE, reject_split=False)
    assert contiguous(parts(topology, found))
    assert contiguous([topology[name].leaf for name in found])
    assert len(set(found)) == 10


def test_without_a_topology_nodes_are_taken_in_their_order():
    names = [f"n{i}" for i in range(9)]
    for tree in (FLAT, Tree({name: Spot() for name in names})):
        found = [
            tree.choose(names, names, nodes, (1,), used, reject_split=False)
            for nodes, used in ((4, NONE), (2, Counter(n0=2, n1=1, n2=1, n4=1)), (10, NONE))
        ]
        assert found == [("n0", "n1", "n2", "n3"), ("n3", "n5"), None], "the least used; too few"


def measured(runs, tree, names, *, reject_split=False, seed=0):
    """A pilot's life with these runs: (run, nodes) in the order of their starts, and the share of node time in runs."""
    generator, now, state, started = random.Random(seed), 0.0, SweepState(), []
    search, running, spent = Search(runs, GPUS["gb200"], "exhaustive"), [], 0.0
    while True:
        busy = [name for _, _, nodes in running for name in nodes]
        free = [name for name in names if name not in busy]
        how = {"search": search, "names": free, "busy": busy, "tree": tree, "reject_split": reject_split}
        choice = choose(runs, state, len(free), 1e9, 60.0, **how) if free else None
        if choice is not None:
            key, seconds = choice.planned.run_id, choice.planned.expected_s * generator.uniform(0.8, 1.2)
            state.apply_all([begun(key, now, nodes=choice.nodes)])
            started.append((choice.planned, choice.nodes))
            spent += seconds * len(choice.nodes)
            heapq.heappush(running, (now + seconds, key, choice.nodes))
        elif running:
            now, key, nodes = heapq.heappop(running)
            state.apply_all([recorded(key, time=now, rate=1.0, node_names=nodes, ended_at=now)])
        else:
            return started, spent / (now * len(names)) if now else 0.0


MIXED = [(1, 4), (2, 8), (4, 4), (4, 16), (6, 8), (8, 32), (9, 4), (12, 16), (16, 64), (18, 8), (24, 32), (36, 4)]


@pytest.mark.parametrize(("sizes", "least"), [((18, 18), 0.94), ((18, 17, 9), 0.92), ((9, 9, 9, 9), 0.92)], ids=str)
def test_three_hundred_runs_of_mixed_widths(sizes, least):
    """Every run once; no group is split that the pilot's nodes could keep whole; the nodes are rarely idle."""
    topology = racks(*sizes, leaves=2)
    names = list(topology)
    runs = [planned(n, *MIXED[n % len(MIXED)]) for n in range(300)]
    runs = [one for one in runs if one.nodes <= len(names)]
    started, share = measured(runs, Tree(topology), names)
    assert sorted(one.run_id for one, _ in started) == sorted(one.run_id for one in runs)
    for one, nodes in started:
        together = nodes_together(one.run())
        split_up = {"tp", "ep"} & set(split(one.run(), parts(topology, nodes)))
        assert bool(split_up) is not fits_whole(topology, names, one.nodes, together), (one.nodes, together, nodes)
    assert share >= least, share


def test_a_layout_that_no_choice_keeps_whole_is_left_out_where_the_grid_says_so_and_stops_no_other():
    topology = racks(6, 6)
    wide, fits, narrow = planned(1, 8, 32), planned(2, 8, 16), planned(3, 2, 8)
    started, _ = measured([wide, fits, narrow], Tree(topology), list(topology), reject_split=True)
    assert [one for one, _ in started] == [fits, narrow]
    started, _ = measured([wide, fits, narrow], Tree(topology), list(topology))
    assert {one for one, _ in started} == {wide, fits, narrow}
    assert split(wide.run(), parts(topology, dict(started)[wide])) == ["tp"]


def test_a_placement_says_over_how_many_domains_a_run_spreads():
    """Packed into the fewest, spread over the most, a segment in each; groups whole in all."""
    topology = racks(6, 6, 6)
    tree, free = Tree(topology), list(topology)

    def taken(placement, count, together=1, names=free):
        found = tree.choose(names, free, count, (together, 1), NONE, reject_split=False, placement=placement)
        if found is None:
            return None
        of = parts(topology, found)
        assert len(set(found)) == count
        assert contiguous(of)
        assert all(len(set(of[at : at + together])) == 1 for at in range(0, count, together))
        return sorted(Counter(of).values())

    assert [taken("packed", count) for count in (3, 6, 8)] == [[3], [6], [2, 6]]
    assert [taken("spread", count) for count in (2, 3, 8)] == [[1, 1], [1, 1, 1], [2, 3, 3]]
    assert [taken("segment-2", count) for count in (2, 4, 6, 8)] == [[2], [2, 2], [2, 2, 2], [2, 2, 4]]
    assert taken("spread", 6, together=2) == [2, 2, 2]
    assert taken("segment-4", 8, together=2) == [4, 4]
    assert taken("segment-3", 6, together=2) == [2, 2, 2], "whole groups only"
    one = [name for name in free if topology[name].domain == "rack0"]
    assert taken("spread", 3, names=one) is None, "it waits for the other domains"
    assert taken("packed", 3, names=one) == [3]


@pytest.mark.parametrize("domains", [True, False], ids=["domains", "switches alone"])
def test_an_axis_of_placements_is_measured_as_asked(domains):
    """Groups of two nodes stay whole."""
    topology, found = racks(6, 6, 6), set()
    known = topology if domains else {node: Spot(None, spot.switches) for node, spot in topology.items()}
    for placement in ("packed", "spread", "segment-2"):
        asked = dataclasses.replace(planned(1, 4, 8).run(), env={PLACEMENT: placement})
        one = PlannedRun(asked.run_id, asked.model, 4, 60.0, asked.canonical_json())
        (((_, on),), _) = measured([one], Tree(known), list(topology))
        found.add((placement, *sorted(Counter(parts(topology, on)).values())))
    assert found == {("packed", 4), ("spread", 2, 2), ("segment-2", 2, 2)}
