"""From records to the tables that reports and figures show: best per cell, axes, cost, nodes, scaling, time. In pandas.

Nothing is drawn or read here; metrics and filters that several tables share are in ``analysis``.
"""
