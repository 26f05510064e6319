"""The sweep directory: every path in it, journals, the launcher's lease, snapshots, and what users ask of a sweep.

Files are written once or appended to by one writer; truth is plans, journals and claims. What events mean belongs to
``sweep.state``, rows of results to ``sweep.records``.
"""
