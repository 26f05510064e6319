"""Which part of the machine makes runs slow: by sweeps on synthetic clusters, whose formulas are not the product's."""

import math
import random
import statistics
from functools import cache

import numpy as np
import pytest

from benchmarks.synthetic_clusters import synthetic_cluster
from sweep.outcomes import Outcome
from sweep.search.observations import Known
from sweep.search.posterior import Errors
from sweep.search.slow import slowed

FACTOR, MOST_RUNS, LEAST_RUNS = 1.5, 300, 150


@cache
def clusters(count):
    """Seeds of the first clusters whose grids have as many runs on several nodes that work, of more than one width:
    those of one width of half a domain all touch the node in its middle, too.
    """
    found = (seed for seed in range(200) if len(working(seed)) >= LEAST_RUNS and widths(seed) > 1)
    return [next(found) for _ in range(count)]


def widths(seed):
    return len(set(synthetic_cluster(seed).recorded.candidates.nodes[working(seed)].tolist()))


@cache
def working(seed):
    made = synthetic_cluster(seed)
    nodes = made.recorded.candidates.nodes
    return [at for at in range(len(nodes)) if not made.doomed[at] and nodes[at] > 1]


def units_of(nodes):
    """Two domains, each of two leaf switches."""
    half, quarter = len(nodes) // 2, len(nodes) // 4
    parts = {f"domain {k}": frozenset(nodes[k * half : (k + 1) * half]) for k in range(2)}
    parts |= {f"switch {k}": frozenset(nodes[k * quarter : (k + 1) * quarter]) for k in range(4)}
    return {node: frozenset([node]) for node in nodes} | parts


def lived(seed, unit=None, factor=FACTOR):
    """What is named first as a sweep goes on, and after how many runs; each is at random in one of the domains."""
    generator, cluster, where, fits = random.Random(seed), synthetic_cluster(seed), {}, 0
    candidates = cluster.recorded.candidates
    nodes = [f"n{number:03}" for number in range(max(16, 4 * int(candidates.nodes.max())))]
    units, known = units_of(nodes), Known(candidates)
    for row in generator.sample(working(seed), min(MOST_RUNS, len(working(seed)))):
        width, half = int(candidates.nodes[row]), len(nodes) // 2
        first = generator.randrange(2) * half + generator.randrange(half - width + 1)
        where[row] = frozenset(nodes[first : first + width])
        slower = factor if unit and units[unit] & where[row] else 1
        rate = cluster.true_rates[row] * math.exp(generator.gauss(0, 0.02)) / slower
        known.end(row, Outcome.OK, rate / (3 if generator.random() < 0.02 else 1))
        errors = known.posterior().errors()
        if errors.fits != fits and (found := slowed(errors, [where[at] for at in errors.runs], units)):
            return found, len(where)
        fits = errors.fits
    return None, len(where)


@pytest.mark.parametrize(
    ("unit", "count"),
    [
        ("domain 0", 2),
        (None, 1),
        *(pytest.param(u, 20, marks=pytest.mark.long) for u in ("domain 0", "domain 1", "switch 2", "n003", None)),
    ],
)
def test_a_domain_whose_links_are_slow_is_named_and_no_healthy_unit_is(unit, count):
    """In 19 of 20 sweeps; a switch or a node is touched by few runs, so that some sweeps end before it is certain."""
    found = [lived(seed, unit) for seed in clusters(count)]
    named = [one for one, _ in found if one is not None]
    print(f"{unit}: {len(named)} of {count} named, after {sorted(runs for _, runs in found)} runs")
    assert {one.unit for one in named} <= {unit}, "a node stays a node"
    if unit is not None and unit.startswith("domain"):
        assert len(named) >= count * 19 / 20
        assert statistics.median(one.factor for one in named) == pytest.approx(FACTOR, rel=0.1)


def test_a_disturbed_run_elsewhere_hides_no_slow_domain():
    nodes = [f"n{at}" for at in range(8)]
    on = [frozenset(nodes[first : first + 2]) for first in (0, 1, 2, 4, 5, 6) for _ in range(12)]
    late = np.array([math.log(FACTOR) if "n0" in some or "n2" in some else 0.0 for some in on])
    late += 0.02 * np.sin(np.arange(len(on)))
    late[-1] = math.log(20)
    alone = [frozenset(["n0"])] * 8  # which use no link
    errors = Errors(1, range(80), np.append(late, np.zeros(8)), np.eye(80) / 0.05**2)
    found = slowed(errors, on + alone, units_of(nodes))
    assert (found.unit, found.factor) == ("domain 0", pytest.approx(FACTOR, rel=0.05))
    assert (found.nodes, found.there, found.runs) == (frozenset(nodes[:4]), 36, 80)
    assert f"36 of 80 runs were on domain 0 and took {found.factor:.2f} times as long" in str(found)
    assert slowed(errors._replace(late=np.zeros(80)), on + alone, units_of(nodes)) is None


def test_a_factor_as_large_as_what_counts_as_far_is_named_early():
    """Clipped about 0, such errors say little more than the smallest that are clipped: 59 runs were needed."""
    found, runs = lived(clusters(4)[3], "domain 0", factor=2.3)
    assert (found and found.unit, runs) == ("domain 0", 29)
