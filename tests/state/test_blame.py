"""Which part of the machine explains failures, by simulated sweeps whose cause is known."""

import math
import random

import pytest

from sweep.outcomes import Outcome
from sweep.state.blame import MOST_BY_CHANCE, Trial, blamed, level, nodes_of, tail, trials_of
from sweep.state.events import NodeReleased
from tests.support.made_events import recorded, started, state_of

NODES = [f"n{i:02}" for i in range(36)]
UNITS = {
    **{node: frozenset([node]) for node in NODES},
    "domain A": frozenset(NODES[:18]), "domain B": frozenset(NODES[18:]),
    **{f"switch {i}": frozenset(NODES[9 * i : 9 * i + 9]) for i in range(4)},
}  # fmt: skip
WIDTHS = (1, 1, 2, 2, 4, 4, 8, 9, 16, 24)


def lived(generator, bad=frozenset(), fails=0.9, base=0.03, most=120):
    """What is blamed first, after how many attempts, as a sweep goes on. Runs are placed side by side."""
    trials = []
    for _ in range(most):
        width, first = generator.choice(WIDTHS), generator.randrange(36)
        half = NODES[:18] if first < 18 else NODES[18:]
        nodes = frozenset(generator.sample(NODES, width) if width > 18 else half[max(0, first % 18 - width) :][:width])
        chance = fails if bad & nodes else base
        trials.append(Trial(nodes, generator.random() < chance))
        if trials[-1].failed and (found := blamed(trials, UNITS)) is not None:
            return found, len(trials)
    return None, most


@pytest.mark.parametrize("unit", ["domain A", "domain B", "switch 2"])
def test_a_units_fault_is_named_as_the_unit_in_19_of_20_sweeps_and_no_healthy_unit_is_accused(unit):
    named, healthy, took = 0, 0, []
    for seed in range(20):
        found, attempts = lived(random.Random(f"{unit} {seed}"), UNITS[unit])
        named += found is not None and found.unit == unit
        healthy += found is not None and not found.nodes <= UNITS[unit]
        took.append(attempts)
    print(f"{unit}: {named} of 20 named, {healthy} healthy accused, after {sorted(took)[10]} attempts")
    assert named >= 19
    assert healthy == 0


def test_a_bad_node_of_a_domain_stays_a_node():
    named = 0
    for seed in range(20):
        node = NODES[(7 * seed) % 36]
        found, _ = lived(random.Random(f"node {seed}"), frozenset([node]))
        assert found is None or found.nodes == {node}, (seed, found)
        named += found is not None
    assert named >= 19


@pytest.mark.parametrize("base", [0.0, 0.03, 0.3])
def test_failures_that_have_no_place_accuse_nothing(base):
    assert (
        sum(lived(random.Random(f"none {seed}"), base=base)[0] is not None for seed in range(20)) <= 20 * MOST_BY_CHANCE
    )


@pytest.mark.parametrize(("node", "beside", "elsewhere", "unit"), [
    ((10, 10), (4, 10), (0, 20), "domain"), ((10, 10), (2, 6), (0, 20), "n0"), ((8, 8), (1, 4), (0, 10), None),
    ((3, 3), (0, 0), (0, 9), None),
])  # fmt: skip
def test_a_domain_is_blamed_for_what_its_bad_node_leaves_over_and_none_of_them_where_either_explains_it(
    node, beside, elsewhere, unit
):
    """Failed of so many attempts on the node, on another of its domain, and elsewhere."""
    counts = {"n0": node, "n1": beside, "n2": elsewhere}
    trials = [Trial(frozenset([name]), at < failed) for name, (failed, of) in counts.items() for at in range(of)]
    units = {name: frozenset([name]) for name in (*counts, "n3")} | {"domain": frozenset(["n0", "n1"])}
    found = blamed(trials, units)
    assert (found.unit if found else None) == unit


def test_what_speaks_of_places_is_what_a_place_may_cause_and_success_and_nothing_from_before_a_release():
    def of(run, outcome, time, node, attempt=1):
        return recorded(run, outcome, time, attempt, node_names=(node,), ended_at=time)

    everywhere = [of("c", Outcome.HANG, 3.0 + at, f"n{at}", attempt=at) for at in (1, 2)]
    events = [of("a", Outcome.OK, 1.0, "n1"), of("b", Outcome.HANG, 2.0, "n2"), of("d", Outcome.OOM_CUDA, 3.0, "n3")]
    n1, n2 = frozenset(["n1"]), frozenset(["n2"])
    made = state_of(*everywhere, started("c", 6.0, 3), *events)
    assert trials_of(made) == [Trial(n1, failed=False), Trial(n2, failed=True)]
    assert nodes_of(made, ["a", "b", "unknown"]) == [n1, frozenset(), frozenset()]
    timeless = state_of(recorded("a", Outcome.OK, 1.0, node_names=("n1",), ended_at=None))
    assert trials_of(timeless) == [Trial(n1, failed=False)], "its end has no time, and nobody released its node"
    released = state_of(*events, NodeReleased(time=1.0, node="n1"), NodeReleased(time=1.5, node="n2"))
    assert trials_of(released) == [Trial(n2, failed=True)]
    assert nodes_of(released, ["a"]) == [frozenset()]


def test_the_numbers_are_fishers():
    """3 of 4 against 1 of 4: 17 of 70 (Fisher's tea, The Design of Experiments, 1935, section 5)."""
    assert math.isclose(tail(3, 4, 1, 4), 17 / 70)
    assert math.isclose(tail(0, 4, 0, 4), 1.0)
    found, _ = lived(random.Random(1), UNITS["domain A"], fails=1.0, base=0.0)
    assert (found.failed, found.failed_elsewhere) == (found.touching, 0)
    by_chance = f"0 of {found.elsewhere} elsewhere; by chance in 1 of {1 / found.chance:,.0f}"
    assert str(found) == f"{found.failed} of {found.touching} attempts on domain A failed, {by_chance}"
    limits = [level(dict.fromkeys("ab", frozenset()), look) for look in (0, 1, 2, 3)]
    assert limits == pytest.approx([MOST_BY_CHANCE / 2, MOST_BY_CHANCE / 4, MOST_BY_CHANCE / 12, MOST_BY_CHANCE / 24])
