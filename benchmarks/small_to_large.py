"""From few nodes to many: python -m benchmarks.accuracy --tables.

The runs of a table on at most so many GPUs are measured, the others predicted from them as `sweep plan --from` does;
next to it the errors of the same runs before anything is measured. Measured runs are in random order:
a fit uses the latest, and some tables are sorted by speed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.reference_tables import Rows, Table
from benchmarks.sub_tables import MOST, bias, mape
from sweep.physics.prediction import by_size, describe
from sweep.physics.trainers import behaviour_of
from sweep.search.layout_kernel import LayoutKernel, axes_of
from sweep.search.scales import Scales
from sweep.search.step_time_model import FREEDOM, interval
from sweep.search.step_times import StepTimes

LEAST = 2
"""measured runs, and predicted ones, from which a line is printed"""
_AXES = ("dp", "tp", "pp", "cp", "ep", "zero", "micro_batch_size", "grad_accum", "nodes", "sequence_length", "dtype")


def lines(found: list[Table]) -> Iterator[str]:
    """A line per table, GPU and number of GPUs up to which runs were measured."""
    errors = "MAPE before | bias before | MAPE after | bias after | in 90 % before | in 90 % after"
    yield f"| table | GPU | measured up to | measured | predicted | {errors} |"
    yield "|---" * 11 + "|"
    for table in found:
        for rows in table.rows:
            gpus = np.broadcast_to(rows.columns["nodes"] * rows.columns["gpus_per_node"], rows.seconds.shape)
            gpus = np.minimum(gpus, _gpus(rows))
            sizes = np.unique(gpus)
            for most in sizes[:-1]:
                small = gpus <= most
                if small.sum() >= LEAST and (~small).sum() >= LEAST:
                    yield _line(table, rows, small, int(most))


def _gpus(rows: Rows) -> Any:
    product = 1
    for axis in ("dp", "tp", "pp", "cp"):
        product = product * rows.columns[axis]
    return np.broadcast_to(product, rows.seconds.shape)


def _line(table: Table, rows: Rows, small: Any, most: int) -> str:
    prior, log_times = describe(rows.columns, rows.gpu, rows.profile), np.log(rows.seconds)
    size = len(log_times)
    columns = {name: np.broadcast_to(rows.columns[name], size) for name in (*_AXES, "num_layers", "hidden_size")}
    models = np.unique(np.stack([columns["num_layers"], columns["hidden_size"]]), axis=1, return_inverse=True)[1]
    blocking = np.full(size, behaviour_of(rows.profile.name).blocking_sends)
    layouts = by_size(prior, columns | {"gpus_per_node": rows.columns["gpus_per_node"]}, models.ravel(), blocking)
    kernel = LayoutKernel(axes_of(columns, [("", "", "{}", "{}")] * size), size)
    nodes = np.unique(columns["nodes"], return_inverse=True)[1].astype(np.int64)
    times = StepTimes(layouts, nodes, kernel, Scales.small(kernel.variances), FREEDOM)
    measured = np.random.default_rng(0).permutation(np.flatnonzero(small))
    fitted = times.fitted(measured, log_times[measured], times.unmeasured())
    asked = np.flatnonzero(~small)
    mean, variance = times.posterior(fitted).moments(asked)
    half = MOST * prior.prior_sd[asked]
    before = prior.log_median[asked] - log_times[asked], half, half
    after = mean - log_times[asked], *interval(variance, fitted.fit.disturbed)
    errors = [cell for off, *_ in (before, after) for cell in (f"{mape(off):.1%}", f"{bias(off):+.0%}")]
    inside = [f"{((-slower < off) & (off < faster)).mean():.0%}" for off, slower, faster in (before, after)]
    cells = [table.name, rows.gpu.name, f"{most} GPUs", int(small.sum()), len(asked), *errors, *inside]
    return "| " + " | ".join(map(str, cells)) + " |"
