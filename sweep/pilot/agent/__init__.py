"""One process per node: starts ranks, forwards what they report, gathers evidence, kills and cleans up after attempts.

Free of torch and single-threaded. It decides nothing: what to run and when to stop belongs to ``sweep.pilot.leader``.
"""
