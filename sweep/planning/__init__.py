"""From a grid and a site to every candidate: a run, or rejected with every reason. Pure.

``build`` makes a plan, ``runs`` reads one back (cheaply: pilots do it), the rest are its steps: expand, rules, reasons,
predict, run_ids, table. The next run is chosen in ``sweep.search``, results are in ``sweep.state``.
"""
