"""On PYTHONPATH: a leader waits 2 s for the last agents, not half a minute."""

from sweep.pilot import timeouts

timeouts.STRAGGLER_S = 2.0
