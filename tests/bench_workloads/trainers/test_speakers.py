"""Which source counts for a rank, its heartbeats, and its measurement."""

import json
import os

import pytest

from bench_workloads.trainers.adapter import ParsedLine
from bench_workloads.trainers.deepspeed import ADAPTER
from bench_workloads.trainers.driver.speakers import STEADY_FACTOR, Speakers
from sweep.contract import Layout, Progress
from tests.support.simulated import big, placed


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
