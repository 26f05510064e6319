"""From parsed lines to iterations, of lines that cover several too; which source counts for a rank; its measurement."""

import json
import os

import pytest

from bench_workloads.trainers.adapter import ParsedLine
from bench_workloads.trainers.deepspeed import ADAPTER
from bench_workloads.trainers.driver.gathering import Gathered, compare
from bench_workloads.trainers.driver.speakers import STEADY_FACTOR, Speakers
from sweep.contract import Layout, Progress
from tests.support.simulated import big, placed
from tests.support.trainers.layouts import run_of


def gathered_from(*entries, warmup=2, iterations=3):
    gathered = Gathered(warmup, iterations)
    for iteration, at_s, values in entries:
        gathered.add(ParsedLine(iteration=iteration, values=values), at_s)
    return gathered


@pytest.mark.parametrize(("entries", "warmup", "iterations", "timed_s", "every"), [
    ([(i, 10.0 + i * 0.5, {}) for i in range(1, 6)], 2, 3, [0.5] * 3, 1),  # by the clock where it reports none
    ([(i, float(i), {"step_time_s": i / 10}) for i in range(1, 6)], 2, 3, [0.3, 0.4, 0.5], 1),  # else as it reports
    ([(i, i * 0.1, {}) for i in (10, 20, 30)], 2, 15, [0.1] * 15, 10),  # a line every ten iterations covers ten
    ([(i, i * 0.5, {}) for i in range(1, 4)], 0, 2, [0.5, 0.5], 1),  # the first, of no known length, is not timed
    ([(1, 1.0, {}), (2, 2.0, {}), (3, 4.0, {}), (4, 4.0, {}), (5, 5.0, {})], 2, 3, [1.0] * 3, 2),  # at once
])  # fmt: skip
def test_iterations_are_timed_by_their_lines(entries, warmup, iterations, timed_s, every):
    gathered = gathered_from(*entries, warmup=warmup, iterations=iterations)
    assert gathered.done
    assert gathered.timed_s() == pytest.approx(timed_s)
    assert gathered.count() == entries[-1][0]
    assert gathered.printed_every == every


def test_the_clock_is_known_beside_the_trainers_own_times():
    gathered = gathered_from(*((i, i * i, {"step_time_s": i / 10}) for i in range(1, 6)))
    assert gathered.wall_s() == pytest.approx((25 - 4) / 3)
    assert gathered_from(*((i, i * 0.5, {}) for i in range(1, 6))).warmup_s() == pytest.approx([0.5])


def test_counts_from_zero_and_repeats_of_other_ranks():
    gathered = gathered_from(
        (0, 0.0, {"loss": 3.0}),
        (0, 0.1, {"loss": 9.0, "allocated_bytes": 7}),
        (1, 1.0, {"loss": 2.0}),
        warmup=1,
        iterations=1,
    )
    assert gathered.timed_s() == [1.0]
    assert gathered.series("loss") == [3.0, 2.0]
    assert gathered.greatest("allocated_bytes") == 7


def test_values_on_a_line_of_their_own_belong_to_the_iteration_before():
    gathered = gathered_from((1, 0.0, {}), (2, 1.0, {}), warmup=1, iterations=1)
    gathered.add(ParsedLine(values={"loss": 4.0}), 1.1)
    assert gathered.entries[-1].values == {"loss": 4.0}


@pytest.mark.parametrize(("printed_s", "reported"), [(0.985, False), (0.975, True), (1.03, True), (1.015, False)])
def test_a_trainers_mean_that_is_two_percent_off_the_clock_is_reported(printed_s, reported):
    gathered = gathered_from(*((i, float(i), {"step_time_s": printed_s}) for i in range(1, 6)))
    disagreements = compare(run_of("megatron"), gathered, "")["disagreements"]
    assert any("its lines came every 1" in text for text in disagreements) == reported


@pytest.fixture
def rank():
    """(speakers of a rank, what it sent to its agent so far)."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)

    def made(rank, warmup=1, iterations=2):
        changes = {"warmup_iterations": warmup, "iterations": iterations}
        run = placed(big(Layout(dp=2, grad_accum=1), **changes), rank)
        return Speakers(run, Progress(writing)), lambda: [json.loads(x) for x in os.read(reading, 1 << 16).splitlines()]

    yield made
    os.close(reading)
    os.close(writing)


def report(speakers, rank, iterations, every=1, **values):
    for iteration in range(every, iterations + 1, every):
        speakers.receive(rank, ParsedLine(iteration=iteration, values=values), float(iteration))


def test_a_ranks_own_output_counts_once_it_reports_iterations(rank):
    speakers, _ = rank(1)
    report(speakers, 0, 3, loss=0.0)
    assert speakers.chosen(own_is_over=False).series("loss") == [0.0] * 3, "another's, while it reports nothing itself"
    report(speakers, 1, 2, loss=1.0)
    assert speakers.chosen(own_is_over=False) is None, "its own are not done"
    assert speakers.chosen(own_is_over=True).series("loss") == [0.0] * 3, "its trainer ended: another's again"
    speakers.receive(1, ParsedLine(iteration=3, values={"loss": 1.0}), 3.0)
    assert speakers.chosen(own_is_over=True).series("loss") == [1.0] * 3
    assert speakers.most_iterations() == 3


def test_each_iteration_is_one_heartbeat_from_any_rank(rank):
    speakers, sent = rank(1)
    speakers.receive(1, ParsedLine(begun=True), 0.0)
    report(speakers, 0, 2)
    report(speakers, 1, 2)
    assert [(heartbeat["phase"], heartbeat["iteration"]) for heartbeat in sent()] == [
        ("first_iteration", 0),
        ("steady", 1),
        ("steady", 2),
    ]


def test_where_a_line_covers_many_iterations_the_next_one_is_due_later(rank):
    speakers, sent = rank(0, iterations=20)
    report(speakers, 0, 30, every=10)
    assert [heartbeat["due_s"] for heartbeat in sent()] == [None, STEADY_FACTOR * 10, STEADY_FACTOR * 10]


def test_memory_is_of_the_rank_itself_and_losses_are_of_rank_0_alone(rank):
    for own, losses in ((0, [2.0] * 3), (1, None)):
        speakers, _ = rank(own)
        report(speakers, 0, 3, loss=2.0, allocated_bytes=100)
        speakers.receive(1, ParsedLine(values={"allocated_bytes": 7}, effective={"dp": 2}), 3.0)
        measured = speakers.measurement(speakers.chosen(own_is_over=False), ADAPTER, {"torch": "2.11"})
        assert measured.peak_allocated_bytes == (7 if own else 100)
        assert measured.losses == losses
        assert measured.step_times_s == pytest.approx([1.0, 1.0])
        assert measured.effective == {"dp": 2}
        assert measured.versions == {"torch": "2.11"}
