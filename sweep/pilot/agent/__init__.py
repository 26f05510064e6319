"""One process per node: starts ranks, forwards what they report, gathers evidence, kills and cleans up after attempts.

Free of torch, and one event loop: only what asks the driver of a GPU, which may hang, is in threads.
It makes no decisions: what to run and when to stop is up to ``sweep.pilot.leader``.
"""
