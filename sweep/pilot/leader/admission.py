"""Who connects to a leader: agents prove the pilot's key, in time; strangers cost a bounded number of connections."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable

from bench_workloads.ports import BACKLOG
from sweep.errors import log_error
from sweep.pilot.channel import HANDSHAKE_TIMEOUT_S, ChannelError, LeaderChannel, authenticate, leader_channel
from sweep.pilot.messages import Hello

MOST_FILES = 65_536
"""what the limit of open files is raised to, where the hard limit allows it: a process inherits it, and some programs
close every number up to the limit at their start"""
REPORT_S = 60.0
"""at most one line about refused connections in this time"""


def raise_file_limit() -> int:
    """Raise this process's limit of open files, and return it: the usual soft limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if wanted > soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft if soft != resource.RLIM_INFINITY else MOST_FILES


class Admission:
    """Admits agents of one pilot: gives the channel and the greeting of each to ``join``."""

    def __init__(self, key: bytes, join: Callable[[LeaderChannel, Hello], None]) -> None:
        self._key, self._join = key, join
        self._most = min(BACKLOG, raise_file_limit() // 4)
        self._unproved: dict[asyncio.StreamWriter, None] = {}
        """connections that have not proved the key, the oldest first"""
        self._refused = 0
        self._report_at = 0.0
        asyncio.get_running_loop().set_exception_handler(self._on_loop_error)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection. Above the bound the oldest one is closed: an agent proves itself at once, or tries again."""
        if len(self._unproved) >= self._most:
            oldest = next(iter(self._unproved))
            del self._unproved[oldest]
            oldest.transport.abort()
        self._unproved[writer] = None
        try:
            channel, hello = await asyncio.wait_for(self._greet(reader, writer), HANDSHAKE_TIMEOUT_S)
        except (ChannelError, asyncio.TimeoutError, OSError) as error:
            self._refuse(str(error) or f"no proof of the key within {HANDSHAKE_TIMEOUT_S:.0f} s")
            writer.transport.abort()
            return
        finally:
            self._unproved.pop(writer, None)
        self._join(channel, hello)

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[LeaderChannel, Hello]:
        channel = leader_channel(reader, writer, await authenticate(reader, writer, self._key, b"leader", b"agent"))
        hello = await channel.receive()
        if not isinstance(hello, Hello):
            raise ChannelError("the peer left before it said who it is")
        return channel, hello

    def _refuse(self, why: str) -> None:
        """Report strangers now and then: the log is bounded."""
        self._refused += 1
        if time.monotonic() >= self._report_at:
            self._report_at = time.monotonic() + REPORT_S
            log_error(f"refused {self._refused} connections that are no agent's; the last: {why}")
            self._refused = 0

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """A connection that the loop could not accept (no descriptor is free): it tries again after a second."""
        if "socket" in context and isinstance(context.get("exception"), OSError):
            self._refuse(f"{context['message']}: {context['exception']}")
        else:
            loop.default_exception_handler(context)
