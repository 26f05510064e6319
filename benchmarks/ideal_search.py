"""How well a search could do that knows the generator of the worlds: python -m benchmarks.ideal_search [--seeds N] ...

Its prior is exact in mean and covariance: for each world's grid it draws thousands of clusters, trainers and
interactions from `benchmarks/worlds.py`, given what the site states of the GPU, and takes the moments of their log
times and log peaks. Everything else is `guided`: conditioning, expected improvement, budget, when cells close. Prints
the tables of `benchmarks.random_worlds` for both, of the same worlds. No search of a user can know such a prior.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from benchmarks import worlds
from benchmarks.random_worlds import Found, statements, strategies_table, tried
from benchmarks.worlds import EVALUATION_SEEDS
from sweep.search.belief_in_parts import BeliefInParts, Parts
from sweep.search.beliefs import Beliefs
from sweep.search.candidates import Candidates
from sweep.search.gaussian import Belief, Floats, Ints, Observed
from sweep.search.memory_limit import MemoryLimit
from sweep.search.memory_model import Peaks
from sweep.search.observations import Known
from sweep.search.scales import Scales
from sweep.search.step_time_model import Fit, disturbance_variance

IDEAL = "guided, given the generator"
DRAWS, AT_ONCE = 2000, 50
NOISE, DISTURBED = 0.0095, 0.0125
"""of `worlds._noise`: the median of the noise, the mean share of disturbed runs"""


@dataclass(frozen=True)
class DrawnFit:
    """Measurements, as ``DrawnTimes`` believes them."""

    indices: Ints
    log_times: Floats
    fit: Fit = field(default_factory=lambda: Fit(np.empty(0), Scales(noise=NOISE), DISTURBED))


class DrawnTimes:
    """Beliefs about log times with the moments of drawn worlds, as ``StepTimes`` has those of its model."""

    def __init__(self, log_times: Floats) -> None:
        """``log_times``: (draws, candidates)."""
        self._mean = log_times.mean(axis=0)
        self._rows = (log_times - self._mean) / np.sqrt(len(log_times) - 1)

    def unmeasured(self) -> DrawnFit:
        """The fit to nothing."""
        return DrawnFit(np.empty(0, dtype=np.int64), np.empty(0))

    def fitted(self, indices: Ints, log_times: Floats, last: DrawnFit) -> DrawnFit:  # noqa: ARG002
        """Nothing is fitted."""
        return DrawnFit(indices, log_times)

    def belief(self, fitted: DrawnFit) -> BeliefInParts:
        """The moments given the measurements, less those of disturbed runs."""
        indices, noise = fitted.indices, np.full(len(fitted.indices), NOISE**2)
        within, error = self.within(indices), fitted.log_times - self._mean[indices]
        if len(indices):
            inverse = np.linalg.inv(within + np.diag(noise))
            alone = 1 / np.diag(inverse)
            noise = noise + disturbance_variance((inverse @ error) * alone, alone, DISTURBED)
        observed = Observed.of(within + np.diag(noise), error)
        return BeliefInParts(Parts(np.zeros(len(self._mean), dtype=np.int64)), self, indices, observed)

    def moments(self, part: int) -> tuple[Floats, Floats]:  # noqa: ARG002
        """Mean and variance of all candidates, which are one part."""
        return self._mean, (self._rows**2).sum(axis=0)

    def between(self, observed: Ints, part: int) -> Floats:  # noqa: ARG002
        """(observed, candidates): prior covariances."""
        found: Floats = self._rows[:, observed].T @ self._rows
        return found

    def within(self, rows: Ints) -> Floats:
        """Prior covariances among some candidates."""
        found: Floats = self._rows[:, rows].T @ self._rows[:, rows]
        return found


class DrawnPeaks(Peaks):
    """Beliefs about peaks with the moments of drawn worlds, and about the peak at which runs fail."""

    def __init__(self, log_use: Floats, log_limits: Floats) -> None:
        mean = log_use.mean(axis=0)
        rows = (log_use - mean) / np.sqrt(len(log_use) - 1)
        self._belief = Belief(mean, (rows**2).sum(axis=0), lambda index: rows[:, index] @ rows)
        self._limit = MemoryLimit(float(log_limits.mean()), float(log_limits.std()))


@dataclass(frozen=True)
class Drawn:
    """Many worlds of one grid."""

    log_times: Floats
    """(draws, candidates), of a step"""
    log_use: Floats
    """(draws, candidates): of the peak over the stated memory"""
    log_limits: Floats
    """(draws,): of the peak at which runs fail, over the same"""


class DrawnBeliefs(Beliefs):
    """Beliefs with the moments of drawn worlds."""

    def __init__(self, candidates: Candidates, made: Drawn) -> None:
        super().__init__(candidates)
        self._times: Any = DrawnTimes(made.log_times)
        self._fitted: Any = self._times.unmeasured()
        self._belief = self._times.belief(self._fitted)
        self._peaks = DrawnPeaks(made.log_use, made.log_limits)


class KnownWorlds(Known):
    """What is known of a sweep, believed with the moments of drawn worlds."""

    def __init__(self, candidates: Candidates, made: Drawn) -> None:
        super().__init__(candidates)
        self._drawn = DrawnBeliefs(candidates, made)

    def beliefs(self) -> Beliefs:
        """Given how runs ended so far, in the order in which they did."""
        further = self._ended.first(len(self._ended))[self._taught :].tolist()
        if further:
            self._drawn.learn([(index, self._ends[index].end) for index in further])
            self._taught = len(self._ended)
        return self._drawn


def drawn(candidates: Candidates, draws: int, seed: int) -> Drawn:
    """Worlds of this grid and data sheet."""
    r, gpu, columns = np.random.default_rng([77_003, seed]), candidates.gpu, _columns(candidates)
    stated = {
        "flops": gpu.peaks_flops["bf16"], "memory": float(gpu.memory_bytes or 0),
        "memory_speed": gpu.memory_bytes_per_s, "inside": (gpu.link_bytes_per_s or 0) / 2,
    }  # fmt: skip
    codes, limit = worlds._codes(columns), candidates.memory_limit_bytes
    found: list[tuple[Floats, Floats, Floats]] = []
    for _ in range(draws // AT_ONCE):
        clusters = [worlds._cluster(r) | stated for _ in range(AT_ONCE)]
        trainers = [worlds._trainer(r) for _ in range(AT_ONCE)]
        k, t = ({name: np.array([[one[name]] for one in made]) for name in made[0]} for made in (clusters, trainers))
        k["network"] = np.minimum(k["network"], k["inside"])
        effects = np.stack([worlds._interactions(r, codes) for _ in range(AT_ONCE)])
        usable = np.log(k["memory"] * t["usable"] / limit)[:, 0]
        peaks = worlds._peak_bytes(columns, t)
        found.append((np.log(worlds._seconds(columns, k, t) * effects), np.log(peaks / limit), usable))
    return Drawn(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def _columns(candidates: Candidates) -> worlds.Columns:
    """As `worlds` has them."""
    given = dict(candidates.columns)
    given["model"] = np.array([candidates.cell_names[cell][0] for cell in candidates.cells])
    given["matrices"] = np.where(given["gated_mlp"], 3.0, 2.0)
    given["heads_total"] = np.where(given["tied_embeddings"], 1.0, 2.0)
    return given


def one_world(draws: int, share: float, seed: int) -> dict[str, Found]:
    made = worlds.world(seed)
    prior = drawn(made.recorded.candidates, draws, seed)
    return {
        "guided": tried(made, "guided", share),
        IDEAL: tried(made, "guided", share, known=KnownWorlds(made.recorded.candidates, prior)),
    }


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=len(EVALUATION_SEEDS), help="how many of them")
    parser.add_argument("--first", type=int, default=EVALUATION_SEEDS[0], help="the first; 200 to 999: development")
    parser.add_argument("--share", type=float, default=0.1, help="budget, as a share of the runs")
    parser.add_argument("--draws", type=int, default=DRAWS, help="worlds drawn for each prior")
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args(argv)
    work = partial(one_world, given.draws, given.share)
    with ProcessPoolExecutor(given.processes) as pool:
        results = list(pool.map(work, range(given.first, given.first + given.seeds)))
    names = list(results[0])
    print("\n".join(strategies_table(results, names)))
    for name in names:
        print(f"\nWhat {name} stated of its remaining runs:\n")
        print("\n".join(statements([result[name] for result in results])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
