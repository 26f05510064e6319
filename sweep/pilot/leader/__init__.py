"""One process per job: chooses runs, executes attempts, watches their progress, writes journal and records.

What happens on a node is in ``sweep.pilot.agent``; what a failure means in ``sweep.diagnose``.
"""


def main(sweep_dir: str, pilot: str) -> None:
    """Run a pilot to its end. Jobs are submitted with this name, so that queued ones survive an upgrade."""
    from sweep.pilot.leader import start

    start.main(sweep_dir, pilot)
