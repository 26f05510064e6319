"""Shared code of all trainer adapters: starting the command, reading its lines, finding iterations, ranks' exchange.

Code for a single trainer belongs to its own file, one folder up.
"""

PRELOAD = "bench_workloads.trainers.driver.driver"
MAIN = f"{PRELOAD}:main"
