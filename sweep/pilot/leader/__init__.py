"""One process per job: chooses runs, conducts attempts, watches their progress, writes journal and records.

What happens on a node belongs to ``sweep.pilot.agent``; what a failure means to ``sweep.diagnose``.
"""


def main(sweep_dir: str, pilot: str) -> None:
    """Run a pilot to its end. Jobs are submitted with this name, so that those already queued outlive an upgrade."""
    from sweep.pilot.leader import leader

    leader.main(sweep_dir, pilot)
