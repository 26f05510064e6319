"""One rank: `python -m sweep.testing.rank LOG PROGRESS [LISTENER]`, descriptors; the request is on stdin."""

from __future__ import annotations

import sys

from sweep.pilot.agent.fork_messages import ForkRequest
from sweep.pilot.agent.fork_server import run_ranks

if __name__ == "__main__":
    sys.exit(run_ranks(ForkRequest.decode(sys.stdin.buffer.readline()), [int(fd) for fd in sys.argv[1:]]))
