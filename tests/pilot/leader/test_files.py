"""What the leader does on the shared file system."""

import asyncio
import time

from sweep.pilot.leader.files import Files
from sweep.state.events import SessionAlive
from tests.support import driving


async def test_the_loop_goes_on_while_the_file_system_hangs(existing):
    files = Files(existing.directory, "pilot-p0001")
    hung = asyncio.ensure_future(files.do(lambda: time.sleep(1.0)))
    written = asyncio.ensure_future(files.append(SessionAlive(time=1.0)))
    ticks = 0
    while not hung.done():
        await asyncio.sleep(0.02)
        ticks += 1
    await written
    files.close()
    assert ticks > 20, "pings must go out meanwhile"
    assert len(driving.events_of(existing.directory.path, SessionAlive)) == 1, "what came after the hang is in order"
