"""A predicted step time is a distribution, which measured runs narrow. Pure; Bayesian regression with a residual.

For the logarithm y of a layout's seconds

    y = log sum_k seconds_k exp(part_k) + sum_f uses_f factor_f + trainer + residual(layout) + noise

``seconds_k``: the parts of ``sweep.physics.step_time``; ``part_k``, ``factor_f``, ``trainer``: unknown, normal about 0
with the spreads of ``sweep.physics.constants``; ``residual``: a Gaussian process over the layout's features
(Rasmussen and Williams 2006, algorithm 2.1). A factor that no measured run uses keeps its spread, so a pipeline stays
uncertain until a pipeline was measured. Corrections of two trainers or clusters are only loosely similar (``COMMON``).
Noise is Student's t about each run; its size, and how much more the model errs than it says, are learned by size of
the cluster.

    layouts = describe(columns, gpu, profile)             # candidates, in columns
    before = Posterior()                                  # nothing measured
    after = Posterior().update(layouts.take(rows), log_seconds)
    mean, sd = after.log_seconds(layouts)                 # of a further run of each layout
    after.sample(layouts.take(some), 100, generator)      # (100, some): jointly, of the layouts' medians

``describe`` costs one evaluation of the model; ``log_seconds`` of n layouts with m measured runs n m^2 operations, m at
most ``MOST_ANCHORS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from sweep.physics import communication, constants, pipeline, unknown_trainer
from sweep.physics.columns import Numbers, equals, read
from sweep.physics.hardware import Gpu
from sweep.physics.machine import Machine
from sweep.physics.profiles import PROFILES, MemoryProfile
from sweep.physics.step_time import PARTS, StepTime, part_spreads, predict

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FACTORS = tuple(constants.FACTORS)
CAUSES = unknown_trainer.CAUSES
FEATURES, SIZE = 12, 2
"""how many a layout has, and which of them is the number of GPUs"""
MOST_ANCHORS = 512
"""an update uses this many of the latest measurements"""
LENGTH = 2.0
"""doublings (of tp, pp, …) over which residuals are similar"""
PRIOR_RUNS = 8.0
"""the spreads of the constants count as if they had been confirmed by this many runs"""
STEPS, MOST_STEP = 6, 0.5
"""linearisations of the sum of parts, and the most that one changes a part's logarithm"""
MOST_CORRECTION = 4.0
"""of a part's logarithm"""
COMMON = 0.3
"""correlation of the corrections of two trainers or clusters: what the model itself has wrong is wrong for both"""
FROM_ANOTHER = PRIOR_RUNS * COMMON**2 / (1 - COMMON**2)
"""all runs of another trainer or cluster say as much about the size of errors as this many of its own"""
NOTHING_S = 1e-12
"""seconds of a part that a layout does not have"""
MOST_NOISE = 1.0
"""the most that one run counts as noise, in the logarithm of its seconds"""
OUTLIER_RUNS = 4.0
"""degrees of freedom of a single run's noise: disturbed runs are common on large clusters"""


@dataclass(frozen=True)
class Layouts:
    """Candidates as the regression sees them; arrays have one row per candidate."""

    parts: Floats
    """(n, parts) median seconds, in the order of ``PARTS``"""
    spreads: Floats
    """(n, parts) standard deviation of each part's logarithm"""
    factors: Floats
    """(n, factors) how much a layout uses each of ``FACTORS``: 0 or 1"""
    features: Floats
    """(n, features) its place among others, in doublings; kinds as steps of two"""
    groups: Ints
    """number of its trainer and cluster"""
    causes: Floats
    """(n, causes) standard deviation of the logarithm of what several parts share (``unknown_trainer.CAUSES``)"""

    def __len__(self) -> int:
        return len(self.parts)

    @cached_property
    def log_median(self) -> Floats:
        """Logarithm of the median seconds before anything is measured."""
        found: Floats = np.log(self.parts.sum(axis=1))
        return found

    @cached_property
    def prior_sd(self) -> Floats:
        """Standard deviation of that logarithm for one run."""
        share = self.parts / self.parts.sum(axis=1)[:, None]
        own = ((share * self.spreads) ** 2).sum(axis=1) + self.factors @ FACTOR_SPREADS**2
        common = constants.TRAINER.spread**2 + constants.RESIDUAL.spread**2 + constants.NOISE.spread**2
        found: Floats = np.sqrt(own + common)
        return found

    @property
    def loadings(self) -> Floats:
        """(parts, causes) which parts share a cause: of a trainer without a profile only."""
        found = np.zeros((self.parts.shape[1], len(CAUSES)))
        if len(found) > len(PARTS):
            found[len(PARTS) :] = unknown_trainer.LOADINGS
        return found

    def take(self, rows: Any) -> Layouts:
        """Some of the candidates."""
        return Layouts(*(getattr(self, one.name)[rows] for one in fields(self)))

    def padded(self, before: int, after: int) -> Layouts:
        """With further parts, of which these candidates have none: to join them with some that do."""
        wide = ((0, 0), (before, after))
        return replace(
            self, parts=np.pad(self.parts, wide, constant_values=NOTHING_S), spreads=np.pad(self.spreads, wide)
        )

    @staticmethod
    def similar(number: int) -> Layouts:
        """Candidates of which nothing is known but that their steps take some time."""
        parts, factors = np.ones((number, len(PARTS))), np.zeros((number, len(FACTORS)))
        features, groups = np.zeros((number, FEATURES)), np.zeros(number, dtype=np.int64)
        return Layouts(parts, np.ones_like(parts), factors, features, groups, np.zeros((number, len(CAUSES))))

    @staticmethod
    def joined(several: list[Layouts]) -> Layouts:
        """Candidates of several profiles or sweeps one after the other."""
        return Layouts(*(np.concatenate([getattr(one, f.name) for one in several]) for f in fields(Layouts)))


FACTOR_SPREADS = np.array([constant.spread for constant in constants.FACTORS.values()])


def describe(
    columns: Mapping[str, Any],
    gpu: Gpu,
    profile: MemoryProfile = PROFILES["ours"],
    *,
    group: int = 0,
) -> Layouts:
    """Candidates given as columns (arrays, or numbers for one). ``group``: number of the trainer and cluster."""
    columns = Numbers.of(Machine(gpu=gpu).within_links(columns))
    found: StepTime = predict(columns, gpu, profile)
    parts = np.broadcast_arrays(*(np.atleast_1d(one) for one in found.by_part().values()))
    size = len(parts[0])
    spreads = part_spreads(columns, gpu, profile)

    def stacked(several: Any) -> Floats:
        return np.stack([np.broadcast_to(one, size) for one in several], axis=1).astype(np.float64)

    return Layouts(
        np.maximum(stacked(parts), NOTHING_S),
        stacked(spreads[name] for name in PARTS),
        stacked(_factors(columns)),
        stacked(_features(columns)),
        np.full(size, group, dtype=np.int64),
        np.zeros((size, len(CAUSES))),
    )


def describe_unknown(columns: Mapping[str, Any], gpu: Gpu, *, group: int = 0) -> Layouts:
    """Candidates of a trainer without a profile: parts are ``unknown_trainer.NAMES``, each as good as unknown."""
    columns, machine = Numbers.of(columns), Machine(gpu=gpu)
    parts = unknown_trainer.amounts(columns, machine)
    size = len(parts)
    features = np.stack([np.broadcast_to(one, size) for one in _features(columns)], axis=1).astype(np.float64)
    groups = np.full(size, group, dtype=np.int64)
    spreads, factors = np.full_like(parts, unknown_trainer.SPREAD), np.zeros((size, len(FACTORS)))
    causes = np.broadcast_to(unknown_trainer.causes(columns, machine), (size, len(CAUSES)))
    return Layouts(parts, spreads, factors, features, groups, causes)


def _factors(columns: Mapping[str, Any]) -> list[Any]:
    """How much a layout uses each factor, in the order of ``FACTORS``."""
    tp, pp = read(columns, "tp"), read(columns, "pp")
    gpus = read(columns, "dp") * tp * pp * read(columns, "cp")
    experts = np.asarray(columns["num_experts"]) if "num_experts" in columns else np.zeros(())
    compiled = read(columns, "compile") if "compile" in columns else np.zeros(())
    found = {
        "pipeline": pp > 1,
        "interleaved": (pp > 1) & (pipeline.chunks_per_rank(columns) > 1),
        "tensor across nodes": communication.axis_nodes(columns, "tp") > 1,
        "several nodes": gpus > read(columns, "gpus_per_node"),
        "context": read(columns, "cp") > 1,
        "experts": experts > 0,
        "zero-3": read(columns, "zero") == 3,
        "recompute": ~equals(columns, "recompute", "none"),
        "8 bits or fewer": equals(columns, "dtype", "fp8", "fp4"),
        "compiled": compiled > 0,
    }
    return [1.0 * found[name] for name in FACTORS]


def _features(columns: Mapping[str, Any]) -> list[Any]:
    pp, tp = read(columns, "pp"), read(columns, "tp")
    gpus = read(columns, "dp") * tp * pp * read(columns, "cp")
    rows = read(columns, "micro_batch_size") * read(columns, "sequence_length") / read(columns, "cp")
    return [
        np.log2(tp),
        np.log2(pp),
        np.log2(gpus),
        np.log2(read(columns, "cp")),
        np.log2(read(columns, "ep")),
        np.log2(rows),
        np.log2(read(columns, "hidden_size")),
        np.log2(read(columns, "grad_accum")),
        1.0 * (read(columns, "zero") > 0),
        2.0 * (read(columns, "zero") == 3),
        2.0 * (tp > read(columns, "gpus_per_node")),
        2.0 * equals(columns, "recompute", "full"),
    ]


@dataclass(frozen=True)
class Posterior:
    """What is known after some measured runs; without any, what the constants say."""

    anchors: Layouts | None = None
    """the measured layouts"""
    shares: Floats = field(default_factory=lambda: np.zeros((0, len(PARTS))))
    """of each part in each of them, as corrected"""
    inverse: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    """of the measured runs' covariance"""
    weights: Floats = field(default_factory=lambda: np.zeros(0))
    misfit: Floats = field(default_factory=lambda: np.zeros(0))
    """of each measured run: 1 where the model errs as much as it says"""
    disturbed: Floats = field(default_factory=lambda: np.zeros(0))
    """of each measured run: square of what the model leaves unexplained"""

    @property
    def degrees_of_freedom(self) -> float:
        """Of Student's t, which predictions follow."""
        return PRIOR_RUNS + len(self.weights)

    def scale(self, layouts: Layouts) -> Floats:
        """Factor of each layout's standard deviation: how much more the model errs there than it says, if it does.

        Never below 1: runs that agree with the model test few factors.
        """
        return np.sqrt(np.maximum(self._nearby(layouts, self.misfit, 1.0), 1.0))

    def noise(self, layouts: Layouts) -> Floats:
        """Variance of the logarithm between two runs of each layout: disturbances are common on large clusters."""
        usual = constants.NOISE.spread**2
        return np.maximum(self._nearby(layouts, np.minimum(self.disturbed, MOST_NOISE**2), usual), usual)

    def _nearby(self, layouts: Layouts, values: Floats, usual: float) -> Floats:
        """Mean of the values of runs on about as many GPUs of the same trainer and cluster, shrunk to the usual one.

        Values are squares, and squares of errors correlate by the square of the errors' own correlation. So all runs of
        another trainer or cluster together count less than one of this one, however many they are.
        """
        if self.anchors is None:
            return np.full(len(layouts), usual)
        apart = layouts.features[:, SIZE, None] - self.anchors.features[None, :, SIZE]
        near = np.exp(-(apart**2) / 2)
        sums, weights = np.full(len(layouts), PRIOR_RUNS * usual), np.full(len(layouts), PRIOR_RUNS)
        for group in np.unique(self.anchors.groups):
            there = self.anchors.groups == group
            runs = near[:, there].sum(axis=1)
            share = np.where(layouts.groups == group, 1.0, FROM_ANOTHER / (runs + PRIOR_RUNS))
            sums, weights = sums + share * (near[:, there] @ values[there]), weights + share * runs
        found: Floats = sums / weights
        return found

    def update(self, layouts: Layouts, log_seconds: Floats) -> Posterior:
        """What is known after these runs, and no others: pass all runs that are to count, the latest last."""
        layouts, log_seconds = layouts.take(slice(-MOST_ANCHORS, None)), np.asarray(log_seconds)[-MOST_ANCHORS:]
        if not len(log_seconds):
            return Posterior()
        theta = np.zeros_like(layouts.parts)
        noise = _noise((log_seconds - layouts.log_median) ** 2 / (layouts.prior_sd / constants.NOISE.spread) ** 2)
        for _ in range(STEPS):
            median, shares = corrected(layouts, theta)
            inverse = np.linalg.inv(_covariance(layouts, shares, layouts, shares) + np.diag(noise)).astype(np.float64)
            error = log_seconds - median + (shares * theta).sum(axis=1)
            weights = inverse @ error
            wanted = _corrections(layouts, layouts, shares, weights)
            theta = theta + np.clip(wanted - theta, -MOST_STEP, MOST_STEP)
            disturbed = (noise * weights) ** 2
            noise = _noise(disturbed)
        return Posterior(layouts, shares, inverse, weights, error * weights, disturbed)

    def corrections(self, layouts: Layouts) -> Floats:
        """(n, parts) expected logarithm of each part's correction, for each layout's trainer and cluster."""
        if self.anchors is None:
            return np.zeros_like(layouts.parts)
        return _corrections(layouts, self.anchors, self.shares, self.weights)

    def log_seconds(self, layouts: Layouts) -> tuple[Floats, Floats]:
        """(median, standard deviation) of the logarithm of a further run's seconds, for each layout."""
        if self.anchors is None:
            return layouts.log_median, layouts.prior_sd
        theta = self.corrections(layouts)
        median, shares = corrected(layouts, theta)
        cross = _covariance(layouts, shares, self.anchors, self.shares)
        mean = median - (shares * theta).sum(axis=1) + cross @ self.weights
        own = ((shares * layouts.spreads) ** 2).sum(axis=1) + layouts.factors @ FACTOR_SPREADS**2
        own = own + constants.TRAINER.spread**2 + constants.RESIDUAL.spread**2
        left = np.maximum(own - np.einsum("ij,ij->i", cross @ self.inverse, cross), 0.0)
        return mean, np.sqrt(self.scale(layouts) ** 2 * left + self.noise(layouts))

    def covariance(self, layouts: Layouts) -> Floats:
        """(n, n) covariance of the logarithms of the layouts' medians: what they share is uncertain in common."""
        shares = corrected(layouts, self.corrections(layouts))[1]
        own = _covariance(layouts, shares, layouts, shares)
        if self.anchors is None:
            return own
        cross = _covariance(layouts, shares, self.anchors, self.shares)
        scale = self.scale(layouts)
        found: Floats = scale[:, None] * scale * (own - cross @ self.inverse @ cross.T)
        return found

    def sample(self, layouts: Layouts, number: int, generator: np.random.Generator) -> Floats:
        """(number, n) joint draws of the logarithms of the layouts' medians."""
        mean, _ = self.log_seconds(layouts)
        values, vectors = np.linalg.eigh(self.covariance(layouts))
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        heavy = np.sqrt(self.degrees_of_freedom / generator.chisquare(self.degrees_of_freedom, size=(number, 1)))
        found: Floats = mean + heavy * (generator.standard_normal((number, len(layouts))) @ root.T)
        return found

    def quantile(self, layouts: Layouts, share: float) -> Floats:
        """Seconds that a further run of each layout stays under with this probability."""
        mean, sd = self.log_seconds(layouts)
        return np.exp(mean + sd * students_quantile(share, self.degrees_of_freedom))


def students_quantile(share: float, degrees_of_freedom: float) -> float:
    """Quantile of Student's t by the expansion of Cornish and Fisher; to 1 % for 5 degrees of freedom or more."""
    from statistics import NormalDist

    z, n = NormalDist().inv_cdf(share), degrees_of_freedom
    return z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)


def _noise(square: Floats) -> Floats:
    """Variance of each run's noise given its squared error: Student's t is a normal with a variance of its own."""
    usual = constants.NOISE.spread**2
    return (OUTLIER_RUNS * usual + square) / (OUTLIER_RUNS + 1)


def corrected(layouts: Layouts, theta: Floats) -> tuple[Floats, Floats]:
    """(logarithm of the sum of parts, share of each in it), the logarithms of parts corrected by theta."""
    weighted = layouts.parts * np.exp(theta)
    total = weighted.sum(axis=1)
    return np.log(total), weighted / total[:, None]


def _similarity(left: Layouts, right: Layouts) -> Floats:
    """Correlation of corrections: 1 within a trainer and cluster, COMMON between two."""
    found: Floats = np.where(left.groups[:, None] == right.groups[None, :], 1.0, COMMON)
    return found


def _corrections(layouts: Layouts, anchors: Layouts, shares: Floats, weights: Floats) -> Floats:
    wanted: Floats = layouts.spreads * (_similarity(layouts, anchors) @ (shares * anchors.spreads * weights[:, None]))
    return np.clip(wanted, -MOST_CORRECTION, MOST_CORRECTION)


def _covariance(left: Layouts, left_shares: Floats, right: Layouts, right_shares: Floats) -> Floats:
    """Prior covariance of the logarithms of two sets of layouts."""
    parts = (left_shares * left.spreads) @ (right_shares * right.spreads).T
    factors = (left.factors * FACTOR_SPREADS**2) @ right.factors.T
    same = (left.groups[:, None] == right.groups[None, :]) * constants.TRAINER.spread**2
    square = (left.features**2).sum(1)[:, None] + (right.features**2).sum(1)[None, :]
    near = np.exp(-np.maximum(square - 2 * left.features @ right.features.T, 0) / (2 * LENGTH**2))
    found: Floats = _similarity(left, right) * (parts + factors + constants.RESIDUAL.spread**2 * near) + same
    return found
