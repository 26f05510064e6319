"""How often the order of the best two is called clear, and wrongly: python -m benchmarks.decided [--cells N]

Simulated cells of two configurations with a true difference, whose runs vary by the given noise; the spread is that of
their own repeats and of those of other cells. Prints Markdown: measurements of both together and claims, for two of
each (fixed) and for the sequential test, which goes on until it decides or until its most.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np

from sweep.physics.statistics import LEVEL, over_looks, pooled_variance, student_two_sided

DIFFERENCES = (0.0, 0.01, 0.02, 0.05)
OTHERS = 3
"""other cells of the sweep with two repeats of their best two: four cells share a small sweep's repeats"""


def ended(
    difference: float, noise: float, most: int, random: np.random.Generator, *, sequential: bool
) -> tuple[int, int]:
    """(measurements, claim: 1 right, -1 wrong, 0 none)."""
    others = noise * random.standard_normal((2 * OTHERS, 2))
    fast, slow = noise * random.standard_normal((2, most)) + np.array([[difference], [0.0]])
    for number in range(2, most + 1):
        variance, freedom = pooled_variance([*others.tolist(), fast[:number].tolist(), slow[:number].tolist()])
        lead = float(fast[:number].mean() - slow[:number].mean())
        chance = student_two_sided(abs(lead) / np.sqrt(2 * variance / number), freedom)
        if (over_looks(chance, number - 1) if sequential else chance) < LEVEL:
            return 2 * number, 1 if lead > 0 else -1
        if not sequential:
            break
    return 2 * number, 0


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=2000)
    parser.add_argument("--noise", type=float, default=0.02, help="standard deviation of a run's logarithm")
    parser.add_argument("--most", type=int, default=12, help="measurements of each at most")
    given = parser.parse_args(argv)
    print("| true difference | procedure | measurements | clear | wrong |\n|---|---|---|---|---|")
    for difference in DIFFERENCES:
        for name in ("two of each", "sequential"):
            random = np.random.default_rng(1)
            found = [
                ended(difference, given.noise, given.most, random, sequential=name == "sequential")
                for _ in range(given.cells)
            ]
            claims = np.array([claim for _, claim in found])
            wrong = (claims != 0).mean() if difference == 0 else (claims < 0).mean()
            spent = np.mean([number for number, _ in found])
            print(f"| {difference:.0%} | {name} | {spent:.1f} | {(claims != 0).mean():.1%} | {wrong:.2%} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
