"""The checks before a pilot's first run: a node that does not answer is waited for as long as its readers may take."""

import asyncio
import time
from types import SimpleNamespace

from sweep.pilot.leader import preflight as module
from sweep.pilot.leader.attempts import Attempts
from sweep.pilot.leader.link import Link
from sweep.pilot.leader.preflight import Preflight
from sweep.search.search import Choice
from tests.support.pilot_parts import Mute, existing, spec

__all__ = ["existing"]


async def test_a_clock_that_is_set_back_meanwhile_prolongs_no_wait_for_a_node_that_does_not_answer(
    existing, monkeypatch
):
    monkeypatch.setattr(module, "LIMIT_S", {"quick": 0.1})
    monkeypatch.setattr(module, "PATIENCE_S", 0.1)
    link, asked = Link("n1", Mute()), spec(preflight="quick")
    preflight = Preflight(asked, Attempts(asked))
    preflight.begin([link], Choice(existing.runs[0], 1))
    back = SimpleNamespace(time=lambda: time.time() - 3600, monotonic=time.monotonic)
    monkeypatch.setattr(module, "time", back)
    assert await asyncio.wait_for(preflight.unfit([link]), 5) == [], "nor is it accused"
