"""Messages between agent and fork server, and the fork server pool."""

import asyncio

import pytest

from sweep.contract import Place
from sweep.pilot.agent import fork_servers
from sweep.pilot.agent.fork_messages import Answer, ForkRequest, encode
from sweep.pilot.agent.fork_servers import ForkServerError, ForkServerPool

PLACE = {"rank": 1, "world_size": 2, "local_rank": 1, "local_world_size": 2, "node_rank": 0, "master_addr": "n1"}
PLACE |= {"master_port": 5, "seed": 3, "scratch_dir": "/s"}


@pytest.mark.parametrize("answer", [Answer(), Answer(error="no"), Answer(7), Answer(7, 9)])
def test_an_answer_arrives_as_it_was_sent(answer):
    assert Answer.decode(encode(answer)) == answer


def test_a_request_arrives_as_it_was_sent():
    request = ForkRequest(main="m:f", run="{}", places=(Place(**PLACE),), env={"A": "b"})
    assert ForkRequest.decode(encode(request)) == request


def pool_of(act):
    async def scenario():
        pool = ForkServerPool("n1")
        try:
            return await act(pool)
        finally:
            for fork_server in pool.fork_servers:
                fork_server.close()

    return asyncio.run(scenario())


def test_a_fork_server_is_shared_by_what_it_imports_and_the_least_recently_used_is_closed(monkeypatch):
    monkeypatch.setattr(fork_servers, "MAX_FORK_SERVERS", 2)

    async def act(pool):
        first = await pool.get([], {})
        assert await pool.get([], {}) is first
        second = await pool.get([], {"A": "b"})
        assert await pool.get([], {}) is first
        third = await pool.get([], {"A": "c"})
        assert [fork_server.pid for fork_server in pool.fork_servers] == [first.pid, third.pid]
        assert await pool.get([], {"A": "b"}) is not second

    pool_of(act)


def test_a_fork_server_that_died_is_replaced():
    async def act(pool):
        first = await pool.get([], {})
        first.died()
        with pytest.raises(ForkServerError):
            await first.fork(ForkRequest(main="m:f", run="{}", places=(), env={}), [], lambda status: None)
        second = await pool.get([], {})
        assert (second is not first, second.dead, second.preloaded) == (True, False, True)

    pool_of(act)


def test_modules_that_cannot_be_preloaded_are_imported_by_the_ranks():
    async def act(pool):
        return (await pool.get(["no_such_module_anywhere"], {})).preloaded

    assert pool_of(act) is False
