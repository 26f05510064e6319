"""Which run comes next, how predictions are updated as a sweep runs, and replay of a search on recorded results. Pure.

A strategy picks among candidates by their results so far (``observations``); ``search`` applies it to a sweep.
Candidates are defined in ``sweep.planning``; the formulas of memory and step time to ``sweep.physics``.
"""
