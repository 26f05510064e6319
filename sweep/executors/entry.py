"""What is pickled for a job: the name of the pilot's main function and its two arguments."""

from __future__ import annotations

from dataclasses import dataclass

from sweep.plugins import load_object

PILOT_MAIN = "sweep.pilot.leader:main"


@dataclass(frozen=True)
class PilotEntry:
    """Calls ``main(sweep_dir, pilot)`` by its name, so that the submitting side never imports the pilot's code."""

    sweep_dir: str
    pilot: str
    main: str = PILOT_MAIN
    """"module:function" """

    def __call__(self) -> None:
        """Run the pilot to its end."""
        load_object(self.main)(self.sweep_dir, self.pilot)
