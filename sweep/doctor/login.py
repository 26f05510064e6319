"""Tier ``login``: read this host and evaluate it. No allocation; every reader at once, each with a time limit."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from bench_workloads.checks.reading import COMMAND_S, read_all
from sweep.checks.check import Check, CheckResult, Json, Reading, Stated, evaluate, readers, result
from sweep.checks.login import LOGIN, READ, SLURM
from sweep.doctor.login_readers import LoginReaders
from sweep.inputs.site import Site
from sweep.plugins import load_object

PATIENCE_S = COMMAND_S + 1.0
"""a reader runs one command of at most COMMAND_S; a file system that hangs is given up, too"""


def check_login(site: Site, executor: str, directory: Path, more: Sequence[Check] = ()) -> list[CheckResult]:
    """Every check of the tier here. ``directory``: where sweeps go. ``more``: of other packages."""
    checks = [check for check in (*LOGIN, *more) if executor == "slurm" or check not in SLURM]
    built_in = LoginReaders(site, executor, directory)

    def function(reader: str) -> Callable[[], Json]:
        module, _, name = reader.partition(":")
        found: Callable[[], Json] = getattr(built_in, name) if module == READ else load_object(reader)
        return found

    found = read_all(readers(checks), PATIENCE_S, function)
    stated, host = Stated(gpu=site.gpu, gpus_per_node=site.gpus_per_node), socket.gethostname()
    return [result(check, host, evaluate(check, Reading.of(found[check.reader]), stated)) for check in checks]
