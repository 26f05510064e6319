"""Lines of ranks, whatever a workload of someone else writes there."""

import asyncio
import fcntl
import json
import os
import subprocess
import sys
import time

import pytest

from sweep.pilot.agent.ranks import MAX_LINE_BYTES, Rank, start_ranks
from sweep.pilot.channel import MAX_FRAME_BYTES
from tests.support.pilot_parts import (
    Image,
    told,
)

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


def test_half_a_character_in_a_message_reaches_the_record_as_one_that_can_be_written(tmp_path):
    written = json.dumps({"kind": "failure", "message": "bad \ud83d name"}).encode() + b"\n"
    (message,) = messages_in(tmp_path, written)
    assert message["message"].encode() == b"bad ? name"
