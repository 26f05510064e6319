"""Sweeps for tests of comparisons: with noise, with a slower cell, in memory and on disk."""

import numpy as np

from sweep.outcomes import Outcome
from sweep.records.collect import write_results
from tests.support.made_records import made_grid, made_measurement, made_record, made_run


def noisy(seed, *, run=0.008, iterations=0.01, slower=None, by=0.05, count=5, per_cell=4):
    """A sweep of 12 cells with noise from run to run and from iteration to iteration; a cell or all may be slower."""
    random = np.random.default_rng(seed)
    rows = made_grid(3, 4, per_cell=per_cell, failing=False)
    base = np.exp(random.normal(0, run, len(rows)))
    hit = rows["model"].eq(slower[0]) & rows["nodes"].eq(slower[1]) if isinstance(slower, tuple) else slower == "all"
    base = np.where(hit, base / (1 - by), base)
    times = base[:, None] * np.exp(random.normal(0, iterations, (len(rows), count)))
    median = np.median(times, axis=1)
    return rows.assign(
        step_times_s=list(times),
        step_time_median_s=median,
        step_time_min_s=times.min(axis=1),
        step_time_max_s=times.max(axis=1),
        tokens_per_second_per_gpu=rows["tokens_per_second_per_gpu"] / median,
    )


def results(path, factor):
    """Six runs of one cell on disk, slower by a factor."""
    rows = []
    for zero in (0, 1):
        for size in (1, 2, 4):
            run = made_run(zero=zero, micro_batch_size=size, iterations=5)
            times = [0.1 * size * factor * (1 + 0.002 * ((7 * k + size + zero) % 5)) for k in range(5)]
            given = [made_measurement(*times, peak_allocated_bytes=2**30) for _ in range(run.gpus)]
            rows.append(made_record(run, measurements=given))
    write_results(path, [*rows, made_record(made_run(zero=3), outcome=Outcome.HANG)])
    return path
