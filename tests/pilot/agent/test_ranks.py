"""Ranks and their processes; all ranks of a node in one process: separate reports, one exit for all of them."""

import asyncio
import signal

import pytest

from sweep.contract import Layout, Run
from sweep.files import end_of
from sweep.pilot.agent import evidence
from sweep.pilot.agent.fork_messages import ForkRequest
from sweep.pilot.agent.fork_servers import ForkServer
from sweep.pilot.agent.ranks import KEPT_BYTES, LOG_BYTES, Rank, one_per_process, start_ranks
from sweep.pilot.messages import RankFailure
from tests.support.mounts import mounted
from tests.support.paths import REPOSITORY
from tests.support.pilot_parts import Image
from tests.support.simulated import place


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


RANKS = 3
RUN = Run(
    workload="w", model="m", shape={}, nodes=1, gpus_per_node=RANKS, sequence_length=1, layout=Layout(dp=RANKS)
)  # fmt: skip


class Reports:
    """The reports that the agent would receive."""

    def __init__(self):
        self.messages = {number: [] for number in range(RANKS)}
        self.ends = []

    def progress(self, rank, messages):
        self.messages[rank.number] += messages

    def end(self, rank):
        self.ends.append((rank.number, *rank.exit_code_and_signal()))

    def kinds(self, number):
        return [type(report) for report in self.messages[number]]


async def ranks_that(act, tmp_path, then):
    """Fork the ranks as one process; `then` ends them where they do not end."""
    reports = Reports()
    environment = {"ACT": act, "PYTHONPATH": str(REPOSITORY)}
    fork_server = await ForkServer.start(["tests.support.shared_process"], environment)
    ranks = [Rank(number, tmp_path / "rank0.log") for number in range(RANKS)]
    places = tuple(place(number, RANKS, scratch_dir=str(tmp_path)) for number in range(RANKS))
    main = "tests.support.shared_process:act"
    request = ForkRequest(main=main, run=RUN.canonical_json(), places=places, env={})
    try:
        await start_ranks(fork_server, ranks, request, None, reports.progress, reports.end)
        await then(ranks, reports)
        await asyncio.wait_for(all_ended(reports), 20)
    finally:
        for rank in ranks:
            rank.close_progress()
        fork_server.close()
    return reports, ranks


async def all_ended(reports):
    while len(reports.ends) < RANKS:
        await asyncio.sleep(0.02)


async def nothing(ranks, reports):
    """They end by themselves."""


def test_ranks_of_one_process_report_separately(tmp_path):
    reports, ranks = asyncio.run(ranks_that("", tmp_path, nothing))
    assert len({rank.pid for rank in ranks}) == 1
    assert {number: messages[0].due_s for number, messages in reports.messages.items()} == {0: 0.0, 1: 1.0, 2: 2.0}
    assert sorted(reports.ends) == [(0, 0, None), (1, 0, None), (2, 0, None)]
    lines = end_of(ranks[0].log, 4096).splitlines()
    assert sorted(line.partition(" in ")[0] for line in lines) == [f"rank {n} of 3" for n in range(RANKS)]
    assert "rank 0 of 3 in MainThread" in lines


@pytest.mark.parametrize(("act", "code", "number"), [("raise", 1, None), ("exit", 7, None), ("kill", None, 9)])
def test_the_end_of_one_rank_is_the_end_of_all(tmp_path, act, code, number):
    reports, ranks = asyncio.run(ranks_that(act, tmp_path, nothing))  # the others wait for ten minutes
    assert sorted(reports.ends) == [(rank, code, number) for rank in range(RANKS)]
    failed = [rank for rank in range(RANKS) if RankFailure in reports.kinds(rank)]
    assert failed == ([1] if act == "raise" else []), "it is reported for the rank that failed, and for no other"
    assert ("KeyError" in end_of(ranks[0].log, 4096)) == (act == "raise")


def test_a_hang_is_shown_by_one_dump_of_all_threads_and_ended_at_once(tmp_path):
    stacks = {}

    async def inspect(ranks, reports):
        while not all(reports.messages.values()):
            await asyncio.sleep(0.02)
        assert one_per_process(ranks) == ranks[:1]
        stacks.update(await evidence.gather(ranks, tmp_path))
        ranks[2].terminate()

    reports, _ = asyncio.run(ranks_that("hang", tmp_path, inspect))
    assert sorted(reports.ends) == [(rank, None, int(signal.SIGTERM)) for rank in range(RANKS)]
    assert list(stacks) == [0]
    assert stacks[0].count(" in act\n") == RANKS
