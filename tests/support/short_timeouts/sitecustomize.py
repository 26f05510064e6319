"""On PYTHONPATH: launchers, leaders and agents lose patience within seconds, so that tests wait less."""

from sweep.pilot import timeouts
from sweep.store import place

timeouts.HEARTBEAT_S, timeouts.QUIET_S, timeouts.SILENCE_S = 0.5, 1.2, 3.0
timeouts.STRAGGLER_S = 2.0
place.GONE_S = 3.0
