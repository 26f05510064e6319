"""From a grid to candidates: the product of its axes in each (model, nodes) cell, as columns, and the two equations.

``dp * tp * pp * cp = GPUs`` and ``dp * micro_batch_size * grad_accum * sequence_length = global batch in tokens``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sweep.contract import FURTHER, Scalar, Workload
from sweep.inputs.axes import AUTO
from sweep.inputs.grid import AXES, DEFAULTS, Grid, variables_of
from sweep.inputs.site import Site
from sweep.physics.shapes import ModelShape
from sweep.planning.effects import Condition, effects_of

CHUNK = 262_144
"""candidates computed at once: bounds memory for any size of grid"""
AUTO_MICRO_BATCHES = tuple(range(1, 17))
"""what ``micro_batch_size: auto`` tries"""
Indices = npt.NDArray[np.int64]
FROM_DP = frozenset({"dp", "dp tokens", "grad_accum", "global_batch_tokens", "nearest tokens", "batch is near"})
"""columns that are undefined if the GPU equation has no whole dp"""
FROM_BATCH = frozenset({"grad_accum", "global_batch_tokens", "over memory"})
"""columns that are undefined if no batch is near enough"""


@dataclass(frozen=True)
class AxisProduct:
    """The candidates of one cell of the heatmap: every combination of some values of the axes."""

    model: str
    """the grid's name of it"""
    shape: ModelShape
    nodes: int
    gpus_per_node: int
    sequence_length: int
    asked_tokens: int
    """the grid's requested tokens per step"""
    tolerance: float
    axes: Mapping[str, tuple[Any, ...]]
    """axis, parameter or variable -> its values, in a fixed order of names"""
    params: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    """which of the axes are parameters that the grid states, and which environment variables. Runs carry these; rules
    see the defaults of the other parameters too, which are not in a run, so that a new one changes no run_id"""
    effects: Mapping[str, tuple[Scalar, Condition]] = field(default_factory=dict)
    """axis or parameter that is not at its default -> (its default, where it has an effect)"""
    node_group: str = ""
    """on which its runs are measured; empty on a site without groups"""
    known: tuple[Mapping[str, tuple[Any, ...]], ...] = ()
    """products expanded earlier in this cell: their points are not repeated"""

    @property
    def row(self) -> str:
        """The model's name in runs and results: a row of the heatmap. Node groups have their own."""
        return f"{self.model}@{self.node_group}" if self.node_group else self.model

    @property
    def gpus(self) -> int:
        """GPUs of its nodes."""
        return self.nodes * self.gpus_per_node

    @property
    def size(self) -> int:
        """Points of the product, before duplicates are dropped or any is rejected."""
        return int(np.prod([len(values) for values in self.axes.values()], dtype=object))


def products(grid: Grid, site: Site, workload: Workload, node_group: str = "") -> Iterator[AxisProduct]:
    """Per cell of the grid the product of its axes, then those that ``include`` adds.

    ``site``: of the node group's nodes alone, with none of the cells that are wider than its max_nodes.
    """
    done: dict[tuple[str, int], list[Mapping[str, tuple[Any, ...]]]] = {}
    for point in ({}, *grid.include):
        for model in point.get("model", tuple(grid.models)):
            for nodes in point.get("nodes", grid.nodes):
                if site.max_nodes is not None and int(nodes) > site.max_nodes:  # type: ignore[arg-type]
                    continue
                product = _product(grid, site, workload, str(model), int(nodes), point)  # type: ignore[arg-type]
                before = done.setdefault((product.model, product.nodes), [])
                yield replace(product, node_group=node_group, known=tuple(before))
                before.append(product.axes)


def _product(
    grid: Grid, site: Site, workload: Workload, model: str, nodes: int, point: Mapping[str, tuple[Scalar, ...]]
) -> AxisProduct:
    shape = grid.models[model]
    gpus = nodes * site.gpus_per_node
    axes: dict[str, tuple[Any, ...]] = {}
    for name in AXES:
        asked = point.get(name, getattr(grid, name))
        if asked is None:  # compile alone has no fixed default
            asked = (workload.compiles_on_gpu and site.gpu != "cpu",)
        axes[name] = _auto(name, grid, site, workload, shape, gpus) if asked == AUTO else tuple(asked)
    for name, default in sorted(workload.params.items()):
        axes[name] = point.get(name, grid.params.get(name, (default,)))
    for name, texts in sorted(variables_of(grid).items()):
        axes[name] = tuple(str(value) for value in point.get(name, texts))
    tokens = grid.global_batch_for(gpus)
    return AxisProduct(
        model=model,
        shape=shape,
        nodes=nodes,
        gpus_per_node=site.gpus_per_node,
        sequence_length=grid.sequence_length,
        asked_tokens=tokens,
        tolerance=grid.global_batch_tolerance,
        axes=axes,
        effects={n: effect for n, effect in effects_of(workload).items() if axes[n] != effect[:1]},
        params=tuple(sorted(set(workload.params) & {*grid.params, *point})),
        env=tuple(sorted(variables_of(grid))),
    )


def _auto(name: str, grid: Grid, site: Site, workload: Workload, shape: ModelShape, gpus: int) -> tuple[Any, ...]:
    if name not in workload.axes:
        return (DEFAULTS[name],)
    if name == "tp":
        widest = gpus if grid.tp_across_nodes else site.linked_gpus
        return tuple(d for d in divisors(gpus if widest > site.gpus_per_node else site.gpus_per_node) if d <= widest)
    if name == "pp":
        return tuple(d for d in divisors(gpus) if d <= shape.num_layers)
    if name == "cp":
        return tuple(d for d in divisors(gpus) if grid.sequence_length % d == 0)
    if name == "ep":
        return divisors(shape.num_experts) if shape.num_experts else (1,)
    if name == "micro_batch_size":
        return AUTO_MICRO_BATCHES
    ready: dict[str, tuple[Any, ...]] = {"zero": (0, 1, 2, 3), "compile": (False, True)}
    return workload.choices.get(name) or ready.get(name) or (DEFAULTS[name],)


def chunks(product: AxisProduct) -> Iterator[Columns]:
    """The candidates of a product, in chunks so that memory stays bounded."""
    names = [name for name, values in product.axes.items() if len(values) > 1]
    lengths = [len(product.axes[name]) for name in names]
    for start in range(0, product.size, CHUNK):
        rows = np.arange(start, min(start + CHUNK, product.size), dtype=np.int64)
        found = np.unravel_index(rows, lengths) if names else ()
        codes: dict[str, Indices] = dict(zip(names, found, strict=True))
        idle = _without_effect(product, codes, len(rows))
        keep = ~_duplicates(product, codes, idle, len(rows))
        if not keep.all():
            codes, idle = ({name: code[keep] for name, code in of.items()} for of in (codes, idle))
        if keep.any():
            yield _columns(product, codes, idle, int(keep.sum()))


def _without_effect(product: AxisProduct, codes: Mapping[str, Indices], size: int) -> dict[str, Any]:
    """Axis -> the points at which it has no effect."""
    columns = _facts(product, codes, size)
    idle = {}
    for name, (_, condition) in product.effects.items():
        idle[name] = np.broadcast_to(np.logical_not(condition(columns)), size)
        _ignore(columns, product, name, idle[name])
    return idle


def _ignore(columns: Columns, product: AxisProduct, name: str, idle: Any) -> None:
    """Set an axis to its default where it has no effect."""
    plain, _ = product.effects[name]
    values = tuple(dict.fromkeys((*columns.values_of(name), plain)))
    columns.derive_words(name, values, np.where(idle, values.index(plain), columns.codes.get(name, 0)))


def _duplicates(product: AxisProduct, codes: Mapping[str, Indices], idle: Mapping[str, Any], size: int) -> Any:
    """Points that duplicate another: by an axis without effect, and in overlapping products."""
    duplicate = np.zeros(size, dtype=bool)
    for name in idle.keys() & codes.keys():
        duplicate |= idle[name] & (codes[name] > 0)
    for axes in product.known:
        inside = np.ones(size, dtype=bool)
        for name, values in product.axes.items():
            member = np.array([value in axes[name] for value in values])
            found = member[codes[name]] if name in codes else member[0]
            inside &= found | idle[name] if name in idle else found
        duplicate |= inside
    return duplicate


def _facts(product: AxisProduct, codes: Mapping[str, Indices], size: int) -> Columns:
    facts = {
        **product.shape.as_dict(),
        "model": product.model,
        "node_group": product.node_group,
        "model row": product.row,
        "nodes": product.nodes,
        "gpus": product.gpus,
        "gpus_per_node": product.gpus_per_node,
        "sequence_length": product.sequence_length,
        "asked tokens": product.asked_tokens,
        "tolerance percent": 100 * product.tolerance,
    }
    further = tuple(name for name, plain in FURTHER.items() if product.axes[name] != (plain,))
    return Columns(facts, product.axes, codes, size, {"params": product.params, "env": product.env, "further": further})


def _columns(product: AxisProduct, codes: Mapping[str, Indices], idle: Mapping[str, Any], size: int) -> Columns:
    columns = _facts(product, codes, size)
    for name, points in idle.items():
        _ignore(columns, product, name, points)
    model_parallel = columns["tp"] * columns["pp"] * columns["cp"]
    columns.derive("model parallel", model_parallel)
    columns.derive("dp is whole", product.gpus % model_parallel == 0)
    columns.derive("dp", np.maximum(product.gpus // model_parallel, 1))
    # grad_accum: the whole number whose batch is nearest to the requested one, the smaller of two
    unit = columns["dp"] * columns["micro_batch_size"] * product.sequence_length
    below = np.maximum(product.asked_tokens // unit, 1)
    above_is_nearer = (below + 1) * unit - product.asked_tokens < np.abs(product.asked_tokens - below * unit)
    grad_accum = np.where(above_is_nearer, below + 1, below)
    tokens = unit * grad_accum
    allowed = product.tolerance * product.asked_tokens * (1 + 1e-12)
    columns.derive("dp tokens", unit)
    columns.derive("grad_accum", grad_accum)
    columns.derive("global_batch_tokens", tokens)
    columns.derive("nearest tokens", tokens)
    columns.derive("batch is near", np.abs(tokens - product.asked_tokens) <= allowed)
    columns.read.clear()
    return columns


class Columns(Mapping[str, Any]):
    """Column name -> array over the candidates, or a scalar if all are equal.

    Internal columns, which no plug-in's rule reads, have a blank in their names, so that no parameter clashes.
    """

    def __init__(
        self,
        facts: Mapping[str, Any],
        axes: Mapping[str, tuple[Any, ...]],
        codes: Mapping[str, Indices],
        size: int,
        named: Mapping[str, tuple[str, ...]],
    ) -> None:
        self._facts = facts
        self._axes = dict(axes)
        self.size = size
        """number of candidates"""
        self.named = named
        """the names of the parameters ("params"), of the variables ("env") and of layout fields that are not at their
        default ("further")"""
        self.codes = dict(codes)
        """axis or column of words -> index of each candidate's value; an axis of one value has no entry"""
        self._made: dict[str, Any] = {}
        """columns that were derived, or read before"""
        self.read: set[str] = set()
        """names read since the last clear"""

    def derive(self, name: str, values: Any) -> None:
        """Add a column, or replace one: an array, or a scalar if all are equal."""
        self._made[name] = values

    def derive_words(self, name: str, words: Sequence[str], codes: Any) -> None:
        """Add a column, or replace one, whose values are few texts: ``codes`` are their indices."""
        self._made.pop(name, None)
        self._axes[name] = tuple(words)
        self.codes[name] = np.broadcast_to(codes, self.size)

    def coded(self, name: str) -> tuple[tuple[Any, ...], Indices] | None:
        """(values, index of each candidate's among them) where these are known without looking at every candidate."""
        return (self._axes[name], self.codes[name]) if name in self.codes else None

    def __contains__(self, name: object) -> bool:
        return name in self._made or name in self._axes or name in self._facts

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        if name not in self._made:
            if name in self.codes:
                self._made[name] = _array(self._axes[name])[self.codes[name]]
            else:
                self._made[name] = self._axes[name][0] if name in self._axes else self._facts[name]
        return self._made[name]

    def values_of(self, axis: str) -> tuple[Any, ...]:
        """The values of an axis, parameter or variable."""
        return self._axes[axis]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._facts, **self._axes, **self._made})

    def __len__(self) -> int:
        return len(list(iter(self)))


def _array(values: tuple[Any, ...]) -> npt.NDArray[Any]:
    """The values as an array of one kind: mixed ones stay Python objects, so that 1 and "1" stay apart."""
    kinds = {type(value) for value in values}
    if len(kinds) == 1 and kinds <= {int, float, bool, str}:
        return np.asarray(values, dtype=np.int64 if kinds == {int} else None)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def divisors(number: int) -> tuple[int, ...]:
    """All divisors, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))
