"""Sweep directories as a launch leaves them, and what pilots wrote later, for tests of commands."""

import time
from pathlib import Path

from sweep.inputs.load import parse_grid
from sweep.outcomes import Outcome
from sweep.planning.build import build
from sweep.state.events import AttemptStarted
from sweep.store.create import create
from sweep.store.journal import Journal
from sweep.store.sweep import Sweep
from tests.support.made_records import made_record, record_event

GRID = """\
name: good
workload: simulated
models: [tiny-1M]
nodes: [1, 2]
sequence_length: 64
global_batch: 4096
micro_batch_size: [1, 2]
dtype: [fp32]
iterations: 3
site: {gpu: cpu, gpus_per_node: 2, max_local_ranks: 8}
"""


def made(directory: Path, text: str = GRID) -> Sweep:
    """A sweep before its first pilot."""
    grid = parse_grid(text, "grid.yaml")
    assert grid.site is not None
    return create(directory, grid, grid.site, build(grid, grid.site), executor="local")


def pilot_wrote(sweep: Sweep, pilot: str, *ends: tuple[str, int, Outcome | None]) -> None:
    """Attempts of a pilot in its journal: run_id, number, outcome (None: still running)."""
    sweep.directory.pilot(pilot).mkdir(mode=0o700)
    runs = {planned.run_id: planned for planned in sweep.runs}
    journal = Journal(sweep.directory.journal(f"pilot-{pilot}"))
    for run_id, number, outcome in ends:
        now = time.time()
        journal.append(AttemptStarted(time=now, pilot=pilot, run_id=run_id, attempt=number, nodes=("n1",)))
        if outcome is not None:
            about = {"attempt": number, "pilot": pilot, "outcome": outcome, "started_at": now, "gpu": sweep.site.gpu}
            record = made_record(runs[run_id].run(), **about)
            journal.append(record_event(record, time.time(), ended_at=now))
    journal.close()


def measured(directory: Path, text: str = GRID) -> Sweep:
    """A sweep all of whose runs are ok, without measuring."""
    sweep = made(directory, text)
    pilot_wrote(sweep, "p0001", *((planned.run_id, 1, Outcome.OK) for planned in sweep.runs))
    return sweep


def tree(root: Path) -> list[tuple[str, int, int]]:
    """All contents of a directory: a refused command changes nothing of it."""
    return sorted((str(p.relative_to(root)), p.stat().st_mtime_ns, p.stat().st_size) for p in root.rglob("*"))
