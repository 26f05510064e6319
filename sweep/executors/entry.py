"""What is pickled for a job: a function, by name, and its three arguments."""

from __future__ import annotations

from sweep.plugins import load_object

PILOT_MAIN = "sweep.pilot.leader.start:main"
"""the pilot's main function, called with the sweep directory and the pilot's name"""


def run_pilot(main: str, sweep_dir: str, pilot: str) -> None:
    """Run the pilot to its end by ``main``, "module:function": the submitting side never imports the pilot's code."""
    load_object(main)(sweep_dir, pilot)
