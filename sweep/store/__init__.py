"""The sweep directory: every path in it, journals, the launcher's lease, snapshots, and users' requests.

Files are written once or appended to by one writer; plans, journals and claims are authoritative. What events mean: see
``sweep.state``, rows of results: ``sweep.records``.
"""
