"""What is known of a sweep: a fold over its journals' events, and rules on it (retries, quarantine, counts). Pure.

Time comes in as an argument. Reading journals belongs to ``sweep.store``, choosing the next run to ``sweep.search``.
"""
