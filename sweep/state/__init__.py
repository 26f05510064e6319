"""The state of a sweep, rebuilt from its journals' events, and rules on it (retries, exclusion, counts). Pure.

Time is an argument. Reading journals is in ``sweep.store``, choosing the next run in ``sweep.search``.
"""
