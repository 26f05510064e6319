"""One process per node: starts ranks, forwards what they report, gathers evidence, kills and cleans up after attempts.

Free of torch and single-threaded. It makes no decisions: what to run and when to stop is up to ``sweep.pilot.leader``.
"""
