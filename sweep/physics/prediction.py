"""A predicted step time is a distribution: its median and spread before anything is measured. Pure.

For the logarithm y of a layout's seconds

    y = log sum_k seconds_k exp(part_k) + sum_f uses_f factor_f + trainer + residual + noise

``seconds_k``: the parts of ``sweep.physics.step_time``; all others: unknown, normal about 0 with the spreads of
``sweep.physics.constants``. The search learns them from measured runs (``sweep.search.step_time_model``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from sweep.physics import communication, constants, unknown_trainer
from sweep.physics.columns import Numbers, equals, read
from sweep.physics.hardware import Gpu
from sweep.physics.machine import Machine
from sweep.physics.profiles import PROFILES, MemoryProfile
from sweep.physics.step_time import PARTS, part_spreads, predict

Floats = npt.NDArray[np.float64]

FACTORS = tuple(constants.FACTORS)
CAUSES = unknown_trainer.CAUSES
DOUBLINGS = tuple(2**k for k in range(14))
"""of the nodes: from so many to twice as many"""
_BLOCKED = PARTS.index("blocked")
NOTHING_S = 1e-12
"""seconds of a part that a layout does not have"""


@dataclass(frozen=True)
class Layouts:
    """Candidates by the parts of their step and what is uncertain about it; arrays have one row per candidate."""

    parts: Floats
    """(n, parts) median seconds, in the order of ``PARTS``"""
    spreads: Floats
    """(n, parts) standard deviation of each part's logarithm"""
    factors: Floats
    """(n, factors) how much a layout uses each of ``FACTORS``: 0 or 1, or how many times"""
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
        own = ((share * self.spreads) ** 2).sum(axis=1) + self.factors**2 @ FACTOR_SPREADS**2
        own += ((self.causes * (share @ self.loadings)) ** 2).sum(axis=1)
        common = constants.TRAINER.spread**2 + constants.RESIDUAL.spread**2 + constants.NOISE.spread**2
        found: Floats = np.sqrt(own + common)
        return found

    @property
    def loadings(self) -> Floats:
        """(parts, causes) which parts share a cause."""
        found = np.zeros((self.parts.shape[1], self.causes.shape[1]))
        if len(found) > len(PARTS):
            found[-len(unknown_trainer.NAMES) :, : len(CAUSES)] = unknown_trainer.LOADINGS
        found[_BLOCKED : _BLOCKED + 1, len(CAUSES) : len(CAUSES) + len(DOUBLINGS)] = 1.0
        found[:, len(CAUSES) + len(DOUBLINGS) :] = 1.0
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
        return Layouts(parts, np.ones_like(parts), factors, np.zeros((number, len(CAUSES))))

    @staticmethod
    def joined(several: list[Layouts]) -> Layouts:
        """Candidates of several profiles one after the other."""
        return Layouts(*(np.concatenate([getattr(one, f.name) for one in several]) for f in fields(Layouts)))


FACTOR_SPREADS = np.array([constant.spread for constant in constants.FACTORS.values()])


def describe(columns: Mapping[str, Any], gpu: Gpu, profile: MemoryProfile = PROFILES["builtin"]) -> Layouts:
    """Candidates given as columns (arrays, or numbers for one)."""
    columns = Numbers.of(Machine(gpu=gpu).within_links(columns))
    parts = np.broadcast_arrays(*(np.atleast_1d(one) for one in predict(columns, gpu, profile).values()))
    size = len(parts[0])
    spreads = part_spreads(columns, gpu, profile)

    def stacked(several: Any) -> Floats:
        return np.stack([np.broadcast_to(one, size) for one in several], axis=1).astype(np.float64)

    return Layouts(
        np.maximum(stacked(parts), NOTHING_S),
        stacked(spreads[name] for name in PARTS),
        stacked(_factors(columns)),
        np.zeros((size, len(CAUSES))),
    )


def by_size(layouts: Layouts, columns: Mapping[str, Any], models: Any, blocking: Any) -> Layouts:
    """The same where small runs are to predict large ones: what each doubling of the nodes adds is unknown until a run
    on so many was measured, and so is how long blocking sends wait on each number of nodes; what is unknown of experts
    is each model's own.

    ``models``: number of each candidate's model; ``blocking``: whether its trainer's sends block.
    """
    gpus = read(columns, "dp") * read(columns, "tp") * read(columns, "pp") * read(columns, "cp")
    doublings = np.log2(gpus / read(columns, "gpus_per_node"))[:, None] - np.arange(len(DOUBLINGS))
    mine = np.asarray(models)[:, None] == np.unique(models)
    scale, experts = FACTORS.index("doublings of nodes"), FACTORS.index("experts")
    factors, spreads = layouts.factors.copy(), layouts.spreads.copy()
    further = (
        spreads[:, _BLOCKED, None] * np.asarray(blocking)[:, None] * ((doublings > 0) & (doublings <= 1)),
        constants.DOUBLING.spread * np.clip(doublings, 0, 1),
        FACTOR_SPREADS[experts] * factors[:, experts, None] * mine,
    )
    factors[:, [scale, experts]] = 0.0
    spreads[blocking, _BLOCKED] = 0.0
    return replace(layouts, factors=factors, spreads=spreads, causes=np.concatenate([layouts.causes, *further], axis=1))


def describe_unknown(columns: Mapping[str, Any], gpu: Gpu) -> Layouts:
    """Candidates of a trainer without a profile: parts are ``unknown_trainer.NAMES``, each as good as unknown."""
    columns, machine = Numbers.of(columns), Machine(gpu=gpu)
    parts = unknown_trainer.amounts(columns, machine)
    size = len(parts)
    spreads, factors = np.full_like(parts, unknown_trainer.SPREAD), np.zeros((size, len(FACTORS)))
    causes = np.broadcast_to(unknown_trainer.causes(columns, machine), (size, len(CAUSES)))
    return Layouts(parts, spreads, factors, causes)


def _factors(columns: Mapping[str, Any]) -> list[Any]:
    """How much a layout uses each factor, in the order of ``FACTORS``."""
    tp, pp = read(columns, "tp"), read(columns, "pp")
    gpus = read(columns, "dp") * tp * pp * read(columns, "cp")
    found = {
        "pipeline": pp > 1,
        "tensor across nodes": communication.axis_nodes(columns, "tp") > 1,
        "doublings of nodes": np.log2(np.maximum(gpus / read(columns, "gpus_per_node"), 1)),
        "context": read(columns, "cp") > 1,
        "experts": read(columns, "num_experts") > 0,
        "recompute": ~equals(columns, "recompute", "none"),
        "compiled": read(columns, "compile") > 0,
    }
    return [1.0 * found[name] for name in FACTORS]


def corrected(layouts: Layouts, theta: Floats) -> tuple[Floats, Floats]:
    """(logarithm of the sum of parts, share of each in it), the logarithms of parts corrected by theta."""
    weighted = layouts.parts * np.exp(theta)
    total = weighted.sum(axis=1)
    return np.log(total), weighted / total[:, None]
