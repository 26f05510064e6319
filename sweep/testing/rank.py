"""One rank: `python -m sweep.testing.rank LOG PROGRESS [LISTENER]`, descriptors; the request is on stdin."""

from __future__ import annotations

import sys

from sweep.pilot.agent.zygote import run_ranks
from sweep.pilot.agent.zygote_messages import ForkRequest

if __name__ == "__main__":
    sys.exit(run_ranks(ForkRequest.decode(sys.stdin.buffer.readline()), [int(fd) for fd in sys.argv[1:]]))
