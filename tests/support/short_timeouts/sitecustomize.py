"""On PYTHONPATH: leaders and agents lose patience within seconds, so that a test need not wait for a minute."""

from sweep.pilot import timeouts

timeouts.HEARTBEAT_S, timeouts.QUIET_S, timeouts.SILENCE_S = 0.5, 1.2, 3.0
timeouts.STRAGGLER_S = 2.0
timeouts.GONE_S = 3.0
