"""`python -m sweep.pilot.leader SWEEP_DIR PILOT`: a pilot without Slurm."""

from __future__ import annotations

import sys

from sweep.pilot.leader.start import main

if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
