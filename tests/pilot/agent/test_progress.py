"""Lines of ranks, whatever a third-party workload writes there, and which of their heartbeats are sent on."""

import fcntl
import json
import math
import os
import sys
import time

import pytest

from sweep.contract import Measurement, Phase, Progress
from sweep.pilot.agent.heartbeats import EARLY_ITERATIONS, HeartbeatBuffer
from sweep.pilot.agent.progress import MAX_LINE_BYTES, ProgressPipe, RankHeartbeat, report_in
from sweep.pilot.messages import Measured, RankFailure, encode

HEARTBEAT = b'{"kind": "beat", "phase": "steady"}\n'
NO_MESSAGES = [b"[" * 100_000, b'{"a":' * 100_000, b"\xff", b"[1]", b"1" * 5000, b'"\\ud83d"']


@pytest.mark.parametrize("line", NO_MESSAGES, ids=range(len(NO_MESSAGES)))
def test_an_invalid_message_does_not_affect_its_neighbours(tmp_path, line):
    assert reports_in(tmp_path, line + b"\n" + HEARTBEAT) == [RankHeartbeat(phase=Phase.STEADY)]


def reports_in(tmp_path, data, capacity=1 << 20):
    """What a rank that wrote this to its pipe reported."""
    read_fd, write_fd = os.pipe()
    fcntl.fcntl(write_fd, fcntl.F_SETPIPE_SZ, capacity)
    os.set_blocking(read_fd, False)
    pipe = ProgressPipe(read_fd)
    found = []
    while data:
        data = data[os.write(write_fd, data[:capacity]) :]
        found += pipe.read()
    os.close(write_fd)
    os.close(read_fd)
    return found


def test_a_message_too_long_to_forward_is_reported_as_the_failure_of_its_rank(tmp_path):
    """The leader takes 64 MiB in one piece. Beyond it, it could only mark the node lost."""
    long = b'{"kind": "measurement", "extra": "' + b"x" * (2 * MAX_LINE_BYTES) + b'"}\n'
    before, too_long, after = reports_in(tmp_path, HEARTBEAT + long + b'{"kind": "failure"}\n')
    assert (before, after.message) == (RankHeartbeat(phase=Phase.STEADY), "")
    assert "8 MiB" in too_long.message


@pytest.mark.parametrize("character", ["é", "0,"])
def test_the_longest_message_can_be_forwarded_whatever_it_is_written_as(tmp_path, character):
    """A number of one byte may become nine."""
    if character == "é":
        head, tail = b'{"kind": "measurement", "step_times_s": [0.1], "extra": {"notes": "', b'"}}\n'
    else:
        head, tail = b'{"kind": "measurement", "step_times_s": [', b"0]}\n"
    long = head + character.encode() * ((MAX_LINE_BYTES - len(head) - len(tail)) // 2) + tail
    (measurement,) = reports_in(tmp_path, long)
    assert encode(Measured(attempt="r.1", rank=0, measurement=measurement))


def test_a_rank_that_sends_heartbeats_without_pause_does_not_block_its_agent(running, tmp_path):
    """Its agent reads no faster than it writes: the other ranks and the leader wait meanwhile."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    heartbeat = b'{"kind": "beat", "phase": "steady", "iteration": 1}\n' * 1000
    running(sys.executable, "-c", f"import os\nwhile True: os.write({write_fd}, {heartbeat!r})", pass_fds=[write_fd])
    pipe, deadline = ProgressPipe(read_fd), time.monotonic() + 20
    while not pipe.read():
        assert time.monotonic() < deadline
    assert len(pipe.read()) < 100_000
    os.close(write_fd)
    os.close(read_fd)


READ = RankHeartbeat(phase=Phase.STEADY, iteration=7, due_s=2.0)
HEARTBEATS = [
    ('"phase": "steady", "iteration": 7.0, "due_s": 2, "of a later version": 1', READ),
    ('"phase": "nonsense"', None),
    ('"phase": "steady", "iteration": "7"', None),
    ('"phase": "steady", "iteration": 1' + "0" * 400, None),
    ('"phase": "steady", "due_s": 1' + "0" * 400, None),
    (f'"phase": "{"s" * 2**20}"', None),
    ('"iteration": 7', None),
]


@pytest.mark.parametrize(("fields", "read"), HEARTBEATS, ids=range(len(HEARTBEATS)))
def test_a_heartbeat_is_read_whatever_comes_with_it_and_an_invalid_one_is_skipped(fields, read):
    assert report_in(b'{"kind": "beat", %s}' % fields.encode()) == read


def test_what_progress_writes_is_read_back():
    read_fd, write_fd = os.pipe()
    progress = Progress(write_fd)
    measurement = Measurement(step_times_s=[0.5], losses=[math.inf], versions={"torch": "2"}, extra={"a": [None, {}]})
    progress.heartbeat(Phase.FIRST_ITERATION, 0, due_s=3.0)
    progress.measured(measurement)
    progress.failed(KeyError("k"))
    os.close(write_fd)
    heartbeat, measured, failed = ProgressPipe(read_fd).read()
    assert heartbeat == RankHeartbeat(phase=Phase.FIRST_ITERATION, iteration=0, due_s=3.0)
    assert measured == measurement
    assert (failed.type, failed.message) == ("KeyError", "'k'")
    assert "KeyError" in failed.traceback


def test_a_nan_loss_gets_through():
    (loss,) = report_in(b'{"kind": "measurement", "step_times_s": [1], "losses": [NaN]}').losses
    assert math.isnan(loss)


def test_bytes_that_come_as_a_fraction_are_rounded():
    """They were converted from GiB: no reason to lose the attempt."""
    given = {"kind": "measurement", "step_times_s": [0.1], "peak_allocated_bytes": 12.3 * 2**30, "parameters": 7e9}
    measurement = report_in(json.dumps(given).encode())
    assert (measurement.peak_allocated_bytes, measurement.parameters) == (13207024435, 7_000_000_000)
    assert isinstance(measurement.parameters, int)


@pytest.mark.parametrize(
    ("odd", "named"),
    [
        ({"peak_allocated_bytes": "12 GB"}, "peak_allocated_bytes"),
        ({"losses": [1, "2"]}, "losses[1]"),
        ({"step_times_s": None}, "step_times_s"),
        ({"peak_memory": 1, "speed": 2}, "peak_memory, speed"),
    ],
)
def test_a_malformed_measurement_is_a_failure_that_names_it(odd, named):
    """A third-party workload: its error fails the attempt, not the pilot."""
    failed = report_in(json.dumps({"kind": "measurement", "step_times_s": [0.1], **odd}).encode())
    assert failed.type == "TypeError"
    assert named in failed.message


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"message": "bad \ud83d name"}, RankFailure(type="Exception", message="bad \ud83d name")),
        ({"type": "E", "message": 7}, RankFailure(type="E", message="7")),
        ({"type": None, "traceback": ["a"]}, RankFailure(type="Exception", message="", traceback="['a']")),
    ],
)
def test_a_failure_in_another_form_becomes_texts(fields, expected):
    """A lone surrogate is passed on: the encoder replaces it (`tests/pilot/test_messages.py`)."""
    assert report_in(json.dumps({"kind": "failure", **fields}).encode()) == expected


def test_a_failure_of_megabytes_is_truncated():
    long = {"type": "E" * 2**20, "message": "m" * 2**20, "traceback": "t" * 2**20 + "the cause"}
    failed = report_in(json.dumps({"kind": "failure", **long}).encode())
    assert len(str(failed)) < 50_000
    assert failed.traceback.endswith("the cause")


def steady(iteration):
    return RankHeartbeat(phase=Phase.STEADY, iteration=iteration)


def test_the_first_are_all_stored_and_of_later_ones_the_last():
    buffer = HeartbeatBuffer()
    for iteration in range(20):
        buffer.add(0, steady(iteration), float(iteration))
    assert [heartbeat.iteration for heartbeat in buffer.take(20.0)] == [19]
    for iteration in range(EARLY_ITERATIONS + 1):
        buffer.add(1, steady(iteration), 0.0)
    assert [heartbeat.iteration for heartbeat in buffer.take(0.0)] == list(range(EARLY_ITERATIONS + 1))


def test_they_are_taken_once_with_their_age():
    buffer = HeartbeatBuffer()
    assert not buffer
    buffer.add(3, RankHeartbeat(phase=Phase.START, due_s=60.0), 10.0)
    assert buffer
    (taken,) = buffer.take(10.5)
    assert (taken.rank, taken.phase, taken.due_s, taken.age_s) == (3, Phase.START, 60.0, 0.5)
    assert not buffer
    assert buffer.take(11.0) == ()


def test_a_rank_iterates_once_its_first_iteration_is_done():
    buffer = HeartbeatBuffer()
    for phase, iterates in [(Phase.START, False), (Phase.FIRST_ITERATION, False), (Phase.STEADY, True)]:
        buffer.add(0, RankHeartbeat(phase=phase), 0.0)
        assert buffer.iterates(0) is iterates
    assert not buffer.iterates(1)
