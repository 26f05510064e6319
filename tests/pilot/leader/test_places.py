"""Where a pilot's nodes are, what records say of it, and which part of the machine its failures name."""

import asyncio
import math
import random
import re

import pytest

from sweep.inputs.topology import Spot
from sweep.outcomes import Outcome
from sweep.physics.hardware import GPUS
from sweep.pilot.leader import places as module
from sweep.pilot.leader.link import Link
from sweep.pilot.leader.places import UNKNOWN, Places
from sweep.search.search import Search
from sweep.state.events import NodeReleased
from sweep.state.state import SweepState
from tests.support.made_events import recorded
from tests.support.pilot_parts import Mute, spec
from tests.support.placed import planned

NO_RUNS = Search([])
RACKS = {f"n{i}": Spot(f"rack{i // 4}", (f"rack{i // 4}",)) for i in range(12)}


def known(spots, fabrics=None, **stated):
    found = Places(spec(executor="slurm", **stated))
    asyncio.run(found.update([Link(node, Mute(), spot=spot) for node, spot in spots.items()], fabrics or {}))
    return found


def test_a_record_says_where_its_nodes_were():
    found = known(RACKS, {"n0": "u.1"}, domain_nodes=("n[4-5]",))
    assert found.of(("n1", "n4")) == (["rack0", "rack1"], ["rack0", "n[4-5]"], ())
    assert found.of(("n0",))[1] == ["u.1"]
    assert found.tree.domains["n8"] == "rack2"


@pytest.mark.parametrize(
    ("shown", "leaf", "notes"),
    [("SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2]\n", "leaf1", ()), ("", None, (UNKNOWN,))],
)
def test_nodes_whose_daemon_says_nothing_are_where_the_controller_says_or_not_known(monkeypatch, shown, leaf, notes):
    monkeypatch.setattr(module, "shown_topology", lambda: shown)
    found = known({"n1": None, "n2": None})
    assert found.of(("n1", "n2")) == ([leaf] * 2, [None] * 2, notes)
    assert known({"n1": Spot(), "n2": Spot()}).of(("n1", "n2"))[2] == (), "known to have none"


def life(outcome_on):
    """The state after 40 attempts, each on two neighbours, that ended as the function says of their nodes."""
    state = SweepState()
    for number in range(40):
        pair, at = (f"n{number % 11}", f"n{number % 11 + 1}"), 100.0 + number
        state.apply_all([recorded(f"r{number}", outcome_on({*pair}), at, node_names=pair, ended_at=at)])
    return state


def test_a_domain_that_explains_the_failures_is_left_out_until_the_user_releases_it():
    places, bad = known(RACKS), ["n4", "n5", "n6", "n7"]
    state = life(lambda pair: Outcome.HANG if pair & {*bad} else Outcome.OK)
    unfit = places.unfit(state, NO_RUNS, Outcome.HANG)
    assert [node for node, _ in unfit] == bad
    (why,) = {why for _, why in unfit}
    assert why.startswith("19 of 19 attempts on domain rack1 failed, 0 of 21 elsewhere; by chance in 1 of 131,282,408,")
    state.apply_all([NodeReleased(time=200.0, node=node) for node in bad])
    assert places.unfit(state, NO_RUNS, Outcome.HANG) == []
    assert known(dict.fromkeys(RACKS, Spot())).unfit(state, NO_RUNS, Outcome.HANG) == [], "no units"


def test_failures_of_the_configuration_or_of_one_node_accuse_no_domain():
    state = life(lambda pair: Outcome.HANG if "n5" in pair else Outcome.OOM_CUDA if "n9" in pair else Outcome.OK)
    assert known(RACKS).unfit(state, NO_RUNS, Outcome.HANG) == []


def test_a_domain_whose_runs_are_slow_is_left_out_until_the_user_releases_it():
    runs = [planned(number, nodes=2, tp=1) for number in range(80)]
    state, places, search = SweepState(), known(RACKS), Search(runs, GPUS["gb200"])
    found, generator = [], random.Random(1)
    for number, one in enumerate(runs):
        rack = 4 * generator.randrange(3)
        pair = tuple(f"n{rack + at}" for at in sorted(generator.sample(range(4), 2)))
        rate = math.exp(generator.gauss(0, 0.03)) * (60 if rack == 4 else 100)
        at = 100.0 + number
        state.apply_all([recorded(one.run_id, time=at, rate=rate, node_names=pair, ended_at=at)])
        found = found or places.unfit(state, search, Outcome.OK)
    assert [node for node, _ in found] == ["n4", "n5", "n6", "n7"]
    (why,) = {why for _, why in found}
    assert re.match(r"\d+ of \d+ runs were on domain rack1 and took 1\.\d\d times as long as those elsewhere let", why)
    assert known(RACKS).unfit(state, search, Outcome.OK), "a pilot that begins later finds it at once"
    state.apply_all([NodeReleased(time=1000.0, node=node) for node, _ in found])
    assert known(RACKS).unfit(state, search, Outcome.OK) == []
