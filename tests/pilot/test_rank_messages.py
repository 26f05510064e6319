"""What ranks of someone else's code may say: it costs their attempt at most, never the pilot, a node or the table."""

import asyncio
import fcntl
import json
import os
import subprocess
import sys
import time

import pytest

from sweep.contract import Measurement
from sweep.outcomes import Outcome
from sweep.pilot.agent.agent import Agent
from sweep.pilot.agent.ranks import MAX_LINE_BYTES, Rank, start_ranks
from sweep.pilot.channel import MAX_FRAME_BYTES, ChannelError
from sweep.pilot.leader.attempt_log import attempt_log
from sweep.pilot.leader.nodes import Link
from sweep.pilot.leader.record import record_of
from sweep.records.collect import table_of
from sweep.records.schema import problems
from tests.support import driving
from tests.support.pilot_parts import (
    PREPARE,
    Image,
    Mute,
    Scripted,
    conducted,
    exits,
    played,
    result_of,
    runner_on,
    start,
    told,
)


def test_beats_that_are_none_are_passed_over(standing):
    beats = [[0, "nonsense", 1, 2.0, 0.0], [0, "steady", "x", None, 0.0], [0, "steady", 3, {}, 0.0]]
    result = said_by_ranks(standing, {"is": "beats", "beats": [*beats, [0, "steady", 4, None, 0.0]]}, *exits(1, 1))
    assert result.ranks[0].progress.startswith("steady, iteration 4, last beat ")


def said_by_ranks(standing, *messages):
    """The result of an attempt whose agent says this of its two ranks."""

    async def scenario():
        link = Link("n1", Mute())
        return await played(runner_on(standing, link), link, *messages)

    return asyncio.run(scenario())


ODD_BEATS = [
    {"phase": "steady", "iteration": "7"},
    {"phase": "steady", "iteration": [7]},
    {"phase": "steady", "iteration": 10**400},
    {"phase": "steady", "iteration": 7, "due_s": 10**400},
    {"phase": "steady", "iteration": 7, "due_s": "soon"},
    {"phase": {}, "iteration": 7},
    {"phase": "s" * 2**20, "iteration": 7},
    {},
]


@pytest.mark.parametrize("odd", ODD_BEATS, ids=range(len(ODD_BEATS)))
def test_an_odd_beat_costs_nothing_that_comes_with_it(tmp_path, monkeypatch, odd):
    good = {"kind": "beat", "phase": "steady", "iteration": 6, "due_s": None}
    lines = [good, {"kind": "beat", **odd}, good, {"kind": "measurement", "step_times_s": [0.1]}]
    monkeypatch.setattr("sweep.pilot.agent.agent.Zygote", Image("".join(f"{json.dumps(line)}\n" for line in lines)))

    async def scenario():
        line = Scripted(PREPARE, start(), until="exit")
        await Agent("n1", 0, tmp_path).serve(line)
        return {message["is"]: message for message in line.sent}

    heard = asyncio.run(scenario())
    assert heard["told"]["message"]["kind"] == "measurement"
    assert [beat[:4] for beat in heard["beats"]["beats"]] == [[1, "steady", 6, None]]


NO_MESSAGES = [b"[" * 100_000, b'{"a":' * 100_000, b"\xff", b"[1]", b"1" * 5000, b'"\\ud83d"']


@pytest.mark.parametrize("line", NO_MESSAGES, ids=range(len(NO_MESSAGES)))
def test_what_is_no_message_costs_none_beside_it(tmp_path, line):
    assert [message["kind"] for message in messages_in(tmp_path, line + b'\n{"kind": "beat"}\n')] == ["beat"]


def messages_in(tmp_path, data, capacity=1 << 20):
    """What a rank that wrote this to its pipe has told."""
    read_fd, write_fd = os.pipe()
    fcntl.fcntl(write_fd, fcntl.F_SETPIPE_SZ, capacity)
    os.set_blocking(read_fd, False)
    rank = Rank(0, tmp_path / "log", "r.1", progress_fd=read_fd)
    found = []
    while data:
        data = data[os.write(write_fd, data[:capacity]) :]
        found += rank.read_progress()
    os.close(write_fd)
    os.close(read_fd)
    return found


def test_a_message_too_long_to_forward_is_told_as_the_failure_of_its_rank(tmp_path):
    """The leader takes 64 MiB in one piece. Beyond it, it could only take the node for lost."""
    long = b'{"kind": "measurement", "extra": "' + b"x" * (2 * MAX_LINE_BYTES) + b'"}\n'
    before, too_long, after = messages_in(tmp_path, b'{"kind": "a"}\n' + long + b'{"kind": "b"}\n')
    assert (before["kind"], after["kind"]) == ("a", "b")
    assert too_long["kind"] == "failure"
    assert "8 MiB" in too_long["message"]


def test_the_longest_message_is_forwarded_whatever_it_is_written_as(tmp_path):
    """JSON makes six bytes of a character of two."""
    head, tail = b'{"kind": "measurement", "extra": "', b'"}\n'
    long = head + "é".encode() * ((MAX_LINE_BYTES - len(head) - len(tail)) // 2) + tail
    (message,) = messages_in(tmp_path, long)
    assert message["kind"] == "measurement"
    assert len(json.dumps({"attempt": "r.1", **told(message)})) < MAX_FRAME_BYTES


def test_a_rank_that_beats_without_pause_does_not_hold_its_agent(tmp_path):
    """Its agent reads no faster than it writes: the other ranks and the leader wait meanwhile."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    beat = b'{"kind": "beat", "phase": "steady", "iteration": 1}\n' * 1000
    writer = subprocess.Popen(
        [sys.executable, "-c", f"import os\nwhile True: os.write({write_fd}, {beat!r})"], pass_fds=[write_fd]
    )
    rank = Rank(0, tmp_path / "log", "r.1", progress_fd=read_fd)
    try:
        deadline = time.monotonic() + 20
        while not rank.read_progress():
            assert time.monotonic() < deadline
        assert len(rank.read_progress()) < 100_000
    finally:
        writer.kill()
        writer.wait()
        os.close(write_fd)
        os.close(read_fd)


@pytest.mark.parametrize("last", [ChannelError("a frame of 99999999 bytes"), ValueError("no JSON"), None])
def test_a_line_that_cannot_be_read_any_more_is_seen_as_gone(standing, last):
    class Line(Mute):
        async def receive(self):
            if last is None:
                return {"no": "known message"}
            raise last

    async def scenario():
        link = Link("n1", Line())
        link.inbox = asyncio.Queue()
        await link.read()
        return link, link.inbox.get_nowait()

    link, last_heard = asyncio.run(scenario())
    assert last_heard == (link, {"is": "gone"})
    assert (link.alive, link.gone.is_set(), link.cleared.is_set()) == (False, True, True)


def test_the_end_of_a_rank_is_told_whatever_it_said_last(tmp_path):
    """In the same read of the warm image's words stand the ends of others."""

    async def scenario():
        image, ends = Image('{"kind": "measurement"}\n'), []
        ranks = [Rank(number, tmp_path / "log", "r.1") for number in range(2)]
        await start_ranks(image, ranks, {}, None, lambda *_: 1 / 0, lambda rank: ends.append(rank.number))
        while len(ends) < 2:
            await asyncio.sleep(0.01)
        for rank in ranks:
            rank.close_progress()
        return ends

    assert asyncio.run(scenario()) == [0, 1]


@pytest.mark.parametrize("times", ["not a list", [None] * 5, [{"a": 1}] * 5])
def test_a_measurement_that_is_none_voids_the_attempt(standing, times):
    record, _ = record_of(conducted(standing), result_of(Outcome.OK, Measurement(step_times_s=times)), None, 2.0)
    assert problems(record) == []
    assert record["outcome"] == "unknown"
    assert record["step_time_median_s"] is None


NUMBERS_THAT_ARE_NONE = [
    {"peak_allocated_bytes": "12 GB"},
    {"peak_allocated_bytes": [12]},
    {"peak_allocated_bytes": 2**63},
    {"peak_reserved_bytes": True},
    {"parameters": "7B"},
    {"parameters": -(2**64)},
    {"losses": [1, "2", 3, 4, 5]},
    {"grad_norms": [1.0, True, 1.0, 1.0, 1.0]},
    {"losses": [2**60 + 1] * 5},
    {"peak_allocated_bytes": "x" * 1_000_000},
]


@pytest.mark.parametrize("values", NUMBERS_THAT_ARE_NONE, ids=lambda values: f"{values}"[:40])
def test_a_value_of_the_wrong_kind_voids_the_attempt_and_not_the_table(standing, values):
    """One such value in the journal, and no collect would ever read the sweep again."""
    measurement = Measurement(**{"step_times_s": [0.1] * 5, **values})
    record, _ = record_of(conducted(standing), result_of(Outcome.OK, measurement), None, 2.0)
    assert record["outcome"] == "unknown"
    assert "cannot be recorded" in record["message"]
    assert len(record["message"]) < 2000
    assert problems(record) == []
    assert table_of([json.loads(json.dumps(record))]).num_rows == 1


def test_the_reason_names_the_value(standing):
    measurement = Measurement(step_times_s=[0.1] * 5, peak_allocated_bytes="12 GB")
    record, _ = record_of(conducted(standing), result_of(Outcome.OK, measurement), None, 2.0)
    assert "peak_memory_bytes must be int64, not '12 GB'" in record["message"]
    assert record["peak_memory_bytes"] is None


def test_a_failure_keeps_its_outcome_where_its_numbers_are_none(standing):
    """An out-of-memory that tells its peak in words is an out-of-memory all the same."""
    measurement = Measurement(step_times_s=[0.1] * 5, peak_allocated_bytes="12 GB")
    record, _ = record_of(conducted(standing), result_of(Outcome.OOM_CUDA, measurement), None, 2.0)
    assert problems(record) == []
    assert record["outcome"] == "oom_cuda"
    assert record["peak_memory_bytes"] is None
    assert record["message"].startswith("why; ")
    assert "12 GB" in record["message"]


def test_bytes_that_come_as_a_fraction_are_rounded(standing):
    """They were worked out of GiB: no reason to lose the attempt."""
    given = {"kind": "measurement", "step_times_s": [0.1] * 5, "peak_allocated_bytes": 12.3 * 2**30, "parameters": 7e9}
    measurement = said_by_ranks(standing, told(given), *exits(0, 1)).ranks[0].measurement
    assert (measurement.peak_allocated_bytes, measurement.parameters) == (13207024435, 7_000_000_000)
    assert isinstance(measurement.parameters, int)


@pytest.mark.parametrize(
    ("said", "failure"),
    [
        ({}, {"type": "Exception", "message": "", "traceback": ""}),
        ({"type": "E", "message": 7}, {"type": "E", "message": "7", "traceback": ""}),
        ({"type": None, "traceback": ["a"]}, {"type": "Exception", "message": "", "traceback": "['a']"}),
    ],
)
def test_a_failure_told_in_another_form_has_a_log_and_a_record(standing, said, failure):
    result = said_by_ranks(standing, told({"kind": "failure", **said}), *exits(1, 1))
    assert result.ranks[0].failure == failure
    record, _ = record_of(conducted(standing), result, None, 2.0)
    assert problems(record) == []
    assert record["outcome"] == "python_exception"
    assert failure["traceback"] in attempt_log(record, result)


def test_a_failure_of_megabytes_is_kept_in_part(standing):
    long = {"type": "E" * 2**20, "message": "m" * 2**20, "traceback": "t" * 2**20 + "the cause"}
    failure = said_by_ranks(standing, told({"kind": "failure", **long}), *exits(1, 1)).ranks[0].failure
    assert len(str(failure)) < 50_000
    assert failure["traceback"].endswith("the cause")


def test_a_log_that_cannot_be_written_ends_no_leader(standing):
    directory = standing.directory.path
    (directory / "logs").rmdir()
    (directory / "logs").touch()
    done = driving.run("resume", directory)
    assert done.returncode == 0, done.stderr
    assert len(driving.assert_each_run_measured_once(directory)) == 2
    assert "no log of" in "".join(path.read_text() for path in directory.glob("pilots/*/stderr"))


def test_half_a_character_in_a_message_reaches_the_record_as_one_that_can_be_written(tmp_path):
    written = json.dumps({"kind": "failure", "message": "bad \ud83d name"}).encode() + b"\n"
    (message,) = messages_in(tmp_path, written)
    assert message["message"].encode() == b"bad ? name"
