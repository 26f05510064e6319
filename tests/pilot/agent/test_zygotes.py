"""Messages between agent and zygote, and the zygote pool."""

import asyncio
import json

import pytest

from sweep.contract import Place
from sweep.pilot.agent import zygotes
from sweep.pilot.agent.zygote_messages import Exited, Forked, ForkRequest, Ready, Refused, decode_answer, encode
from sweep.pilot.agent.zygotes import ZygoteError, ZygotePool

PLACE = {"rank": 1, "world_size": 2, "local_rank": 1, "local_world_size": 2, "node_rank": 0, "master_addr": "n1"}
PLACE |= {"master_port": 5, "seed": 3, "scratch_dir": "/s"}


@pytest.mark.parametrize("answer", [Ready(), Refused("no"), Forked(7), Exited(7, 9)])
def test_an_answer_arrives_as_it_was_sent(answer):
    assert decode_answer(encode(answer)) == answer


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ('{"ready": true, "error": null}', Ready()),
        ('{"ready": false, "error": "no such module"}', Refused("no such module")),
        ('{"pid": 7}', Forked(7)),
        ('{"exited": 7, "status": 256}', Exited(7, 256)),
    ],
)
def test_answers_as_older_zygotes_write_them(line, answer):
    assert decode_answer(line.encode()) == answer


def test_a_request_as_an_older_agent_writes_it():
    line = {"main": "m:f", "run": "{}", "places": [PLACE], "env": {"A": "b"}}
    request = ForkRequest.decode(json.dumps(line).encode())
    assert request == ForkRequest(main="m:f", run="{}", places=(Place(**PLACE),), env={"A": "b"})
    assert ForkRequest.decode(encode(request)) == request


def pool_of(act):
    async def scenario():
        pool = ZygotePool("n1")
        try:
            return await act(pool)
        finally:
            for zygote in pool.zygotes:
                zygote.close()

    return asyncio.run(scenario())


def test_a_zygote_is_shared_by_what_it_imports_and_the_least_recently_used_is_closed(monkeypatch):
    monkeypatch.setattr(zygotes, "MAX_ZYGOTES", 2)

    async def act(pool):
        first = await pool.get([], {})
        assert await pool.get([], {}) is first
        second = await pool.get([], {"A": "b"})
        assert await pool.get([], {}) is first
        third = await pool.get([], {"A": "c"})
        assert [zygote.pid for zygote in pool.zygotes] == [first.pid, third.pid]
        assert await pool.get([], {"A": "b"}) is not second

    pool_of(act)


def test_a_zygote_that_died_is_replaced():
    async def act(pool):
        first = await pool.get([], {})
        first.died()
        with pytest.raises(ZygoteError):
            await first.fork(ForkRequest(main="m:f", run="{}", places=(), env={}), [], lambda status: None)
        second = await pool.get([], {})
        assert (second is not first, second.dead, second.preloaded) == (True, False, True)

    pool_of(act)


def test_modules_that_cannot_be_preloaded_are_imported_by_the_ranks():
    async def act(pool):
        return (await pool.get(["no_such_module_anywhere"], {})).preloaded

    assert pool_of(act) is False
