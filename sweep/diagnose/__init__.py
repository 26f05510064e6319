"""Why an attempt ended as it did: log lines, exit codes, kernel facts in; one outcome with evidence, advice out. Pure.

Gathering the evidence belongs to ``sweep.pilot``; whether a run is tried again to ``sweep.state``.
"""
