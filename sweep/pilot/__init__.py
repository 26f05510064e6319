"""The job side: a leader per job, an agent per node, the channel and messages between them, and the launcher's order.

The login side is ``sweep.launcher``: it writes the order, and both meet in the sweep directory only.
"""
