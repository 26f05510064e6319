"""What is known of a sweep, as a fold over its journals' events; and the rules on it: retries, quarantine, counts. Pure.

Time comes in as an argument. Reading journals belongs to ``sweep.store``, choosing the next run to ``sweep.search``.
"""
