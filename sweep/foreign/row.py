"""One row of a foreign table as read: its run, what the source states of its speed, and which size of model it has.

Rows of one configuration in a foreign table: measurements of it, or one measurement stated again. Pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from sweep.contract import Run
from sweep.outcomes import Outcome
from sweep.physics import flops, shapes
from sweep.physics.hardware import GPUS
from sweep.records.metrics import TERA, efficiency, executed_flops_per_token, has_frozen_weights
from sweep.records.schema import Efficiency

NUMBER = re.compile(r"\s*[-+]?[\d.]+(e[-+]?\d+)?\s*|nan|inf", re.IGNORECASE)
SIZE_TOLERANCE = 0.01
"""FLOPs per token of one layout that differ by more are of two models. Rounding of an MFU in percent with two digits
after the point is less; that of whole TFLOPS is added"""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row whose columns the map has translated."""

    line: int
    cells: Mapping[str, Any]
    """the source's own columns"""
    given: Mapping[str, Any]
    """the record's columns that row and map state"""
    run: Run
    shape: shapes.ModelShape
    """the model's, by the map"""
    convention: flops.FlopsConvention
    executed: bool
    """the source's TFLOPS and MFU count what is recomputed"""
    notes: tuple[str, ...] = ()
    other_size: bool = False
    """the map's shape is not this row's: nothing can be derived from it"""

    @property
    def tflops(self) -> float | None:
        """The source's TFLOPS per GPU, as it counts them."""
        return self.given.get("tflops_per_gpu")

    @property
    def peak_flops(self) -> float | None:
        """The dense peak of the row's GPU in its dtype."""
        gpu = GPUS.get(str(self.given.get("gpu") or "").lower())
        return None if gpu is None else gpu.peak_flops(self.run.dtype)

    @property
    def reported_mfu(self) -> float | None:
        """The source's MFU; none if it counts what is recomputed."""
        return None if self.executed else self.given.get("reported_mfu")

    @property
    def reported_hfu(self) -> float | None:
        """The source's HFU, under whatever name: stated, or by its TFLOPS."""
        stated = self.given.get("reported_hfu")
        if stated is not None or not self.executed:
            return stated
        if self.given.get("reported_mfu") is not None:
            return float(self.given["reported_mfu"])
        return self.tflops * TERA / self.peak_flops if self.tflops and self.peak_flops else None

    @property
    def stated_rate(self) -> float | None:
        """Tokens per second and GPU, from rates or a step time that the source states."""
        given, gpus = self.given, self.given["gpus"]
        if given.get("tokens_per_second_per_gpu") is not None:
            return float(given["tokens_per_second_per_gpu"])
        if given.get("tokens_per_second") is not None:
            return float(given["tokens_per_second"] / gpus)
        if given.get("step_time_median_s") and given.get("global_batch_tokens"):
            return float(given["global_batch_tokens"] / given["step_time_median_s"] / gpus)
        return None

    @property
    def rate(self) -> float | None:
        """Tokens per second and GPU; from the source's TFLOPS if it states no rate."""
        if self.stated_rate is not None or not self.tflops:
            return self.stated_rate
        return self.tflops * TERA / self.counted_flops_per_token

    @property
    def efficiency(self) -> Efficiency:
        """By the row's convention, from its rate and the map's shape; nothing where the shape is another model's."""
        if self.other_size:
            return Efficiency()
        stated = self.given.get("parameters_total")
        return efficiency(self.run, self.rate, self.given.get("gpu"), convention=self.convention, stated=stated)

    @cached_property
    def counted_flops_per_token(self) -> float:
        """What the source must have counted for a token if its model has the map's shape."""
        stated = self.given.get("parameters_total")
        if self.executed:
            return executed_flops_per_token(self.run, self.shape, self.convention, None, stated)
        frozen = has_frozen_weights(self.run)
        return float(
            flops.model_flops_per_token(
                self.shape, self.run.sequence_length, self.convention, frozen_weights=frozen, stated=stated
            )
        )

    @property
    def stated_flops_per_token(self) -> float | None:
        """FLOPs of a token by the source's own MFU (or HFU, or TFLOPS) and rate, whatever the model's shape is."""
        rate, share = self.stated_rate, self.given.get("reported_mfu")
        if not rate or self.given["outcome"] != str(Outcome.OK):
            return None
        if share and self.peak_flops:
            return float(share * self.peak_flops / rate)
        return self.tflops * TERA / rate if self.tflops else None


def size_names(label: str, found: Sequence[shapes.ModelShape]) -> list[str]:
    """A name for each shape that a label stands for: the first has the label itself."""
    return [label, *(f"{label} ({_billions(shapes.total_parameters(shape))})" for shape in found[1:])]


def nearest_size(rows: Sequence[Row]) -> Row:
    """Of one row with each shape that its model may have, the one whose size the source states; else the first.

    The size is stated by parameters_total, or by MFU and tokens/s.
    """
    if len(rows) == 1:
        return rows[0]
    stated = rows[0].given.get("parameters_total")
    if stated is not None:
        return min(rows, key=lambda row: abs(shapes.total_parameters(row.shape) - stated))
    return min(rows, key=_distance)


def separated_sizes(rows: Sequence[Row]) -> list[Row]:
    """The rows, where those that record one layout for two sizes of model under one label have a label each.

    Within a layout the source's MFU and tokens/s give every row the same FLOPs per token, unless the models differ.
    Which of them has the map's shape keeps the label.
    """
    layouts: dict[str, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        if row.stated_flops_per_token is not None:
            layouts[row.run.run_id].append(place)
    found = list(rows)
    for places in layouts.values():
        layout = [rows[place] for place in places]
        base = min(layout, key=_distance)
        rates = {row.stated_rate for row in layout if not _of_another_size(row, base)}
        for place in places:
            # A rate that is there with the base's FLOPs too is one measurement twice: its MFU was wrong once.
            if _of_another_size(rows[place], base) and rows[place].stated_rate not in rates:
                found[place] = _renamed(rows[place], base)
    return found


def _distance(row: Row) -> float:
    """How far the source's FLOPs per token are from those of the row's shape; 0 where it does not state them."""
    stated = row.stated_flops_per_token
    return 0.0 if stated is None else abs(stated / row.counted_flops_per_token - 1)


def _of_another_size(row: Row, base: Row) -> bool:
    mine, other = row.stated_flops_per_token, base.stated_flops_per_token
    assert mine is not None
    assert other is not None
    rounding = 0.5 / row.tflops + 0.5 / (base.tflops or row.tflops) if row.tflops else 0.0
    return abs(mine / other - 1) > SIZE_TOLERANCE + rounding


def _renamed(row: Row, base: Row) -> Row:
    """The row as of another model than the base, named by the size that its figures mean."""
    label, mine, other = row.run.model, row.stated_flops_per_token, base.stated_flops_per_token
    assert mine is not None
    recomputed = row.executed and row.run.layout.recompute == "full"
    per_parameter = (4 if has_frozen_weights(row.run) else 6) + 2 * recomputed
    difference = (mine - row.counted_flops_per_token) / per_parameter
    name = f"{label} ({_billions(shapes.total_parameters(row.shape) + difference)})"
    note = (
        f"one layout is recorded for two sizes of {label}, or its MFU is wrong: with tokens/s it gives "
        f"{mine:.4g} FLOPs per token here, {other:.4g} in line {base.line}"
    )
    return replace(
        row, given={**row.given, "model": name}, run=replace(row.run, model=name), notes=(note,), other_size=True
    )


def _billions(parameters: float) -> str:
    return f"{parameters / 1e9:.3g}B"


Number = tuple[int, int]


def numbers(rows: Sequence[Row]) -> list[Number]:
    """(repeat, attempt) of each row. Two runs do not give equal figures: such a row is a further record of the first.

    It is a further attempt, which does not count: repeats that agree to the last digit would make a lead clear.
    """
    known: dict[str, list[list[Row]]] = defaultdict(list)
    found = []
    for row in rows:
        measurements = known[row.run.run_id]
        repeat = next((at for at, equal in enumerate(measurements) if _equal(row, equal[0])), len(measurements))
        if repeat == len(measurements):
            measurements.append([])
        measurements[repeat].append(row)
        found.append((repeat, len(measurements[repeat])))
    return found


def _equal(row: Row, other: Row) -> bool:
    """Whether both state one rate, and no other memory."""
    if row.stated_rate is None or row.stated_rate != other.stated_rate:
        return False
    memory = {row.given.get("peak_memory_bytes"), other.given.get("peak_memory_bytes")} - {None}
    return len(memory) < 2 and all(row.given.get(name) == other.given.get(name) for name in ("outcome", "gpu"))


def grouping_texts(rows: Sequence[Mapping[str, Any]], measured: Collection[str]) -> list[str]:
    """Columns with texts that group the rows: some are equal, and they are not numbers."""
    found = []
    for name in rows[0]:
        values = [row.get(name) for row in rows]
        texts = [value for value in values if isinstance(value, str) and value]
        if name not in measured and texts and len(set(texts)) < len(texts) and not all(map(NUMBER.fullmatch, texts)):
            found.append(name)
    return found
