"""What makes a machine fit for measurements: checks by tier, their verdicts, expected rates. Pure.

Readers run elsewhere (``bench_workloads.checks`` on nodes, ``sweep.doctor`` on the login node); here are values only.
"""
