"""The job side: a leader per job, an agent per node, the channel and messages between them, and the launcher's order.

The login side is ``sweep.launcher``: it writes the order. The two share only the sweep directory.
"""
