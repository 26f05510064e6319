"""What a job with failures gets: against published optima, and against simulated jobs."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
import simpy

from sweep.physics.job import (
    FAILURES_PER_GPU_DAY,
    LIKELY,
    SECONDS_PER_DAY,
    SEEN_FAILURES,
    Job,
    count_interval,
    known_rate,
    saves,
)

MINUTE = 60.0


@pytest.mark.parametrize(("hours", "minutes"), [(24, 117), (6, 57), (0.25, 9.1)])
def test_the_interval_is_dalys(hours, minutes):
    """Captions of figures 3 to 5 of Daly 2006, with a dump of 5 min and a restart of 10 min."""
    job = Job(
        step_s=1.0, gpus=1, stall_s=5 * MINUTE, slowdown=0.0, durable_s=5 * MINUTE, restart_s=10 * MINUTE,
        failures_per_gpu_day=24 / hours,
    )  # fmt: skip
    assert float(job.interval_s) / MINUTE == pytest.approx(minutes, rel=0.01)
    assert replace(job, step_s=1e6).interval_s == 1e6, "a step at least"
    assert replace(job, durable_s=1e4, slowdown=-0.1).checkpoint_s == job.stall_s, "faster steps are no gain of it"
    assert replace(job, durable_s=0.0, slowdown=0.1).checkpoint_s == job.stall_s, "it is whole before its stall's end"


def test_shares_add_up_and_whoever_fails_never_only_trains():
    rates = np.array([1e-9, 1e-4, 1e-2])
    job = Job(
        step_s=10.0, gpus=4096, stall_s=20.0, slowdown=0.1, durable_s=120.0, restart_s=300.0,
        failures_per_gpu_day=rates,
    )  # fmt: skip
    training, checkpoints, lost, restarts = job.shares
    assert training + checkpoints + lost + restarts == pytest.approx(np.ones(3))
    assert training[0] > 0.999
    assert list(training) == sorted(training, reverse=True)
    assert min(checkpoints) > 0
    assert min(*lost, *restarts) > 0


def test_of_a_job_without_end_only_the_rate_of_its_failures_is_uncertain():
    job = Job(step_s=10.0, failures_per_gpu_day=FAILURES_PER_GPU_DAY, **JOBS["sync"])
    known = float(job.shares[0])
    for end, sign in zip(job.likely(known, known, known), (1, -1), strict=True):
        rate = FAILURES_PER_GPU_DAY * (1 + sign * LIKELY / math.sqrt(SEEN_FAILURES))
        assert known - end == pytest.approx(known - float(replace(job, failures_per_gpu_day=rate).shares[0]), rel=0.1)


@pytest.mark.parametrize(("count", "low", "high"), [(0, 0.0, 2.996), (1, 0.051, 4.744), (25, 17.38, 34.92),
                                                  (419, 385.909, 454.268)])  # fmt: skip
def test_the_interval_of_a_count_is_the_exact_one(count, low, high):
    """Published: epitools' pois.daly for 0, GraphPad's example for 25; scipy's chi2.ppf for 419."""
    assert count_interval(count) == pytest.approx((low, high), abs=0.006)


@pytest.mark.parametrize(("failures", "gpu_days", "own"), [
    (10, 20000.0, False), (10, 200.0, True), (1200, 2.5e6, True), (0, 1e6, False), (10, 0.0, False), (1, 1e6, True),
])  # fmt: skip
def test_ones_own_failures_count_where_they_say_more_than_the_published_ones(failures, gpu_days, own):
    """The same rate, by fewer; another cluster's; one that is better known; none; no time; far fewer."""
    published = (FAILURES_PER_GPU_DAY, SEEN_FAILURES)
    assert known_rate(failures, gpu_days) == ((failures / gpu_days, failures) if own else published)


def test_in_a_job_that_ends_when_its_failures_come_is_uncertain_too():
    """Each loses the restart and, of the time since a checkpoint, any part: a compound Poisson process."""
    job, days = Job(step_s=10.0, failures_per_gpu_day=FAILURES_PER_GPU_DAY, **JOBS["slow writes"]), 20 * SECONDS_PER_DAY
    known, lost = float(job.shares[0]), job.shares[2] + job.shares[3]
    part = (np.arange(1000) + 0.5) / 1000 * (job.interval_s + job.checkpoint_s)
    variance = np.mean((job.restart_s + job.lag_s + part) ** 2) / (job.between_failures_s * days)
    low, high = job.likely(known, known, known, wall_s=days, seen=math.inf)
    wanted = known * LIKELY * variance**0.5 / (1 - lost)
    assert [known - low, high - known] == pytest.approx([wanted, wanted])
    assert [float(end) for end in job.likely(known, known, known, wall_s=1.0)] == [0.0, known / (1 - lost)]


def test_a_run_saves_where_its_parameters_name_a_way_to():
    assert [saves(params) for params in ({}, {"checkpoint": "none"}, {"checkpoint": "sync"})] == [False, False, True]


class Simulated:
    """One job that is killed and restarted until so much training is whole."""

    def __init__(self, job: Job, wanted_s: float, seed: int) -> None:
        self.env, self._job, self._chance = simpy.Environment(), job, random.Random(seed)
        self._wanted_s, self._whole_s, self.done = wanted_s, 0.0, self.env.event()
        self._interval_s, self._lag_s = float(job.interval_s), float(job.lag_s)
        self._life = self._writer = None
        self.restarting_s = 0.0
        self.env.process(self._failures())

    def seconds(self) -> float:
        self.env.run(until=self.done)
        return self.env.now

    def _failures(self):
        self._life = self.env.process(self._train(0.0))
        while True:
            yield self.env.timeout(self._chance.expovariate(1 / self._job.between_failures_s))
            for process in (self._life, self._writer):
                if process is not None and process.is_alive:
                    process.interrupt()
            self._life = self.env.process(self._train(self._job.restart_s))

    def _train(self, restart_s: float):
        job, writes = self._job, False
        try:
            begin = self.env.now
            try:
                yield self.env.timeout(restart_s)
            finally:
                self.restarting_s += self.env.now - begin
            trained_s = self._whole_s
            while True:
                left_s = self._interval_s
                if writes:  # meanwhile steps are slower
                    yield self.env.timeout(self._lag_s)
                    left_s -= self._lag_s / (1 + job.slowdown)
                yield self.env.timeout(left_s + job.stall_s)
                trained_s += self._interval_s
                self._writer, writes = self.env.process(self._write(trained_s)), True
        except simpy.Interrupt:
            pass

    def _write(self, trained_s: float):
        try:
            yield self.env.timeout(self._lag_s)
        except simpy.Interrupt:
            return
        self._whole_s = trained_s
        if trained_s >= self._wanted_s and not self.done.triggered:
            self.done.succeed()


JOBS = {
    "as Llama 3": {"gpus": 16384, "stall_s": 5.0, "slowdown": 0.05, "durable_s": 60.0, "restart_s": 600.0},
    "sync": {"gpus": 16384, "stall_s": 120.0, "slowdown": 0.0, "durable_s": 120.0, "restart_s": 600.0},
    "slow writes": {"gpus": 8192, "stall_s": 20.0, "slowdown": 0.2, "durable_s": 900.0, "restart_s": 300.0},
    "few failures": {"gpus": 512, "stall_s": 30.0, "slowdown": 0.1, "durable_s": 90.0, "restart_s": 900.0},
}


@pytest.mark.parametrize(
    ("name", "days"),
    [("sync", 1), *(pytest.param(name, days, marks=pytest.mark.long) for name in JOBS for days in (3, 20))],
)
def test_the_prediction_is_what_a_thousand_simulated_jobs_get(name: str, days: float):
    """Of each the failure rate is drawn, from what is known of it."""
    known = Job(step_s=10.0, failures_per_gpu_day=FAILURES_PER_GPU_DAY, **JOBS[name])
    share = float(known.shares[0])
    wanted_s = math.ceil(days * SECONDS_PER_DAY * share / known.interval_s) * float(known.interval_s)
    draw = random.Random(name)
    rates = [draw.gammavariate(SEEN_FAILURES, FAILURES_PER_GPU_DAY / SEEN_FAILURES) for _ in range(1000)]
    jobs = (replace(known, failures_per_gpu_day=rate) for rate in rates)
    simulated = [Simulated(job, wanted_s, seed) for seed, job in enumerate(jobs)]
    took = [one.seconds() for one in simulated]
    assert float(known.shares[3]) == pytest.approx(sum(one.restarting_s for one in simulated) / sum(took), rel=0.05)
    got = wanted_s / np.array(took)
    low, high = known.likely(1.0, 1.0, 1.0, wall_s=days * SECONDS_PER_DAY)
    assert share == pytest.approx(wanted_s * len(took) / sum(took), rel=0.02)
    covered = np.mean((got >= low * share) & (got <= high * share))
    assert 0.80 <= covered <= 0.97, covered
