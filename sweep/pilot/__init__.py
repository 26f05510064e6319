"""The job side: a leader per job, an agent per node, the channel and messages between them, and the job spec.

The login side is ``sweep.launcher``: it writes the job spec. The two share only the sweep directory.
"""
