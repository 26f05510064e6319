"""One process per job: chooses runs, executes attempts, watches their progress, writes journal and records.

What happens on a node is in ``sweep.pilot.agent``; what a failure means in ``sweep.diagnose``.
"""
