"""Which run comes next, how a sweep learns while it runs, and the replay of a search on recorded results. Pure.

A strategy picks among candidates by what is known of them (``observations``); ``search`` puts it to work on a sweep.
What a candidate is belongs to ``sweep.plan``; the formulas of memory and step time to ``sweep.physics``.
"""
