"""Times of the connection between a leader and its agents: both sides keep to them."""

from __future__ import annotations

HEARTBEAT_S = 2.0
"""how often each side sends a sign of life: 22 in SILENCE_S"""
QUIET_S = 4.0
"""a heartbeat is missing: what the other side does is unknown for now, and no rank is late that its agent reports on.
Well below any limit of a rank: its last heartbeat is older than its agent's last message, by an iteration or more, so
that its limit may be up before the agent counts as unresponsive"""
SILENCE_S = 45.0
"""Then the connection is given up. TCP sends lost data again 0.2 s after the loss, then after twice the time each time
(RFC 6298, section 5.5): 13, 26 and 51 s after it. So a network that was away for 25 s is back within 26 s."""
RETURN_S = 4.0
"""how long after a connection was closed its agent may take to be back, before it counts as dead: it tries at once"""
ARRIVAL_S = 180.0
"""how long after the last agent the next one may take to connect, while fewer than half are there: three times what
Slurm gives a node to become ready (ResumeTimeout, 60 s by default)"""
STRAGGLER_S = 30.0
"""once half are there, the rest may take as long again as that half, and at least this: half of ResumeTimeout"""
RECONNECT_S = 600.0
"""how long an agent looks for a leader that does not answer: twice Slurm's default SlurmdTimeout (300 s), after which
the scheduler takes a dead node from the job"""
