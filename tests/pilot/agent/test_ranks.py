"""Ranks and their processes."""

import asyncio

from sweep.pilot.agent.fork_messages import ForkRequest
from sweep.pilot.agent.ranks import Rank, start_ranks
from tests.support.pilot_parts import Image


def test_the_exit_of_a_rank_is_reported_whatever_it_sent_last(tmp_path):
    """The ends of others may come in the same read from the fork server."""
    request = ForkRequest(main="m:f", run="{}", places=(), env={})

    async def scenario():
        image, ends = Image('{"kind": "failure"}\n'), []
        ranks = [Rank(number, tmp_path / "log") for number in range(2)]
        await start_ranks(image, ranks, request, None, lambda *_: 1 / 0, lambda rank: ends.append(rank.number))
        while len(ends) < 2:
            await asyncio.sleep(0.01)
        for rank in ranks:
            rank.close_progress()
        return ends

    assert asyncio.run(scenario()) == [0, 1]
