"""Entry point of tier ``node``: run readers on this node. One rank per node, no rendezvous, no torch."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench_workloads.checks.reading import read_all
from sweep.contract import Measurement, Phase

if TYPE_CHECKING:
    from sweep.contract import Progress, RankRun


def main(run: RankRun, progress: Progress) -> None:
    """Read what the parameter ``readers`` names, and report it."""
    progress.heartbeat(Phase.START)
    began = time.perf_counter()
    found = read_all(str(run.params["readers"]).split(","))
    progress.measured(Measurement(step_times_s=[time.perf_counter() - began], extra={"readings": found}))
    progress.heartbeat(Phase.FINISH)
