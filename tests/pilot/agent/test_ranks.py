"""Ranks and their processes."""

import asyncio

import pytest

from sweep.files import end_of
from sweep.pilot.agent.fork_messages import ForkRequest
from sweep.pilot.agent.ranks import KEPT_BYTES, LOG_BYTES, Rank, start_ranks
from tests.support.mounts import mounted
from tests.support.pilot_parts import Image


async def test_the_exit_of_a_rank_is_reported_whatever_it_sent_last(tmp_path):
    """The ends of others may come in the same read from the fork server."""
    request = ForkRequest(main="m:f", run="{}", places=(), env={})
    image, ends = Image('{"kind": "failure"}\n'), []
    ranks = [Rank(number, tmp_path / "log") for number in range(2)]
    await start_ranks(image, ranks, request, None, lambda *_: 1 / 0, lambda rank: ends.append(rank.number))
    while len(ends) < 2:
        await asyncio.sleep(0.01)
    for rank in ranks:
        rank.close_progress()
    assert ends == [0, 1]


@pytest.mark.parametrize("holes", [True, False], ids=["holes", "no holes"])
def test_a_flood_of_output_leaves_its_end_and_little_on_the_disk(tmp_path, request, holes):
    if not holes:
        request.getfixturevalue("no_holes")
    rank, most, writes, lines = Rank(0, tmp_path / "log"), 0, [], LOG_BYTES // 4000
    for first in range(0, 8 * lines, lines):  # its fourth and its last piece are too much
        with rank.log.open("ab") as output:
            output.writelines(b"%09d " % number + b"x" * 1013 + b"\n" for number in range(first, first + lines))
        writes.append(rank.trim_log())
        most = max(most, allocated(tmp_path))
    assert not rank.trim_log(), "it writes no more"
    assert all(writes)
    last = end_of(rank.log, KEPT_BYTES).splitlines()
    assert [line[:9] for line in last[-100:]] == [f"{number:09}" for number in range(8 * lines - 100, 8 * lines)]
    assert most <= LOG_BYTES


def allocated(folder):
    """Bytes that the folder's file system holds for its one file; ramfs counts none."""
    return (folder / "log").stat().st_blocks * 512 or (folder / "log").stat().st_size


@pytest.fixture
def no_holes(tmp_path):
    """A file system that cannot free a part of a file."""
    with mounted(tmp_path, "-t", "ramfs", "none"):
        yield
