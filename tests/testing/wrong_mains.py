"""Mains of a workload: one as it should be, the others each with a mistake. Ranks import this module alone."""

import time
from dataclasses import replace

from sweep.contract import Measurement, Phase


def good(run, progress):
    for number in range(run.warmup_iterations + run.iterations):
        progress.heartbeat(Phase.STEADY if number else Phase.FIRST_ITERATION, number)
    times = [0.1] * run.iterations
    progress.measured(Measurement(step_times_s=times, warmup_times_s=[0.1], effective={"dp": run.layout.dp}))


def too_few_times(run, progress):
    progress.heartbeat(Phase.FIRST_ITERATION, 0)
    progress.measured(Measurement(step_times_s=[0.1], warmup_times_s=[0.1]))


def no_heartbeat(run, progress):
    progress.measured(Measurement(step_times_s=[0.1] * run.iterations, warmup_times_s=[0.1]))


def backwards(run, progress):
    progress.heartbeat(Phase.STEADY, 1)
    progress.heartbeat(Phase.FIRST_ITERATION, 0)
    progress.measured(Measurement(step_times_s=[0.1] * run.iterations, warmup_times_s=[0.1]))


def another_layout(run, progress):
    progress.heartbeat(Phase.FIRST_ITERATION, 0)
    measurement = Measurement(step_times_s=[0.1] * run.iterations, warmup_times_s=[0.1], effective={"dp": 7})
    progress.measured(replace(measurement, peak_allocated_bytes=-1))


def twice(run, progress):
    good(run, progress)
    good(run, progress)


def nothing(run, progress):
    progress.heartbeat(Phase.FIRST_ITERATION, 0)


def raises(run, progress):
    raise RuntimeError("no such device")


def exits(run, progress):
    raise SystemExit(3)


def hangs(run, progress):
    progress.heartbeat(Phase.FIRST_ITERATION, 0)
    time.sleep(60)
