"""Why an attempt ended as it did: log lines, exit codes, kernel facts in; one outcome with evidence, advice out. Pure.

Evidence is gathered in ``sweep.pilot``; retries are decided in ``sweep.state``.
"""
