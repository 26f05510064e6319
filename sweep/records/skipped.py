"""Which runs the strategy or the budget will not start: `skipped.parquet`, derived, safe to delete.

Figures and reports read it, so that they neither open a sweep nor run its search.
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING

from sweep.errors import SweepError, log_error
from sweep.files import parquet_of, read_table
from sweep.store.directory import SweepDir, write_derived
from sweep.store.sweep import Sweep, open_sweep
from sweep.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa

SKIPPED_FILE = "skipped.parquet"
"""next to the results"""
_AS_OF = b"sweep.as_of"
"""Key of the table's metadata: a digest of all inputs of the search."""
_NOT_RUN = "not_run_"


def update_skipped(directory: SweepDir) -> None:
    """Bring the table up to date with plans, grids, site and journals: columns run_id, skipped (budget, strategy), gain
    (expected, over the cell's best, as a logarithm) and chance (that it is worth it: ``sweep.search.guided.missed``).

    Best effort: where the sweep cannot be opened or the file not be written, the reason is printed on stderr, and no
    table, or the earlier one, remains.
    """
    if not directory.plan.is_file():
        return
    as_of = _inputs(directory)
    file = directory.path / SKIPPED_FILE
    with contextlib.suppress(OSError, SweepError):
        if (read_table(file).schema.metadata or {}).get(_AS_OF) == as_of:
            return
    try:
        write_derived(file, parquet_of(_table(open_sweep(directory.path), as_of)))
    except (OSError, SweepError) as error:
        log_error(f"note: which runs are skipped is not known: {error}")


def _table(sweep: Sweep, as_of: bytes) -> pa.Table:
    import pyarrow as pa

    skipped = sweep.skipped()
    lost = sweep.missed() if skipped else {}
    reasons = [reason.removeprefix(_NOT_RUN) for reason in skipped.values()]
    both = [[lost.get(run_id, (0.0, 0.0))[at] for run_id in skipped] for at in (0, 1)]
    texts, numbers = pa.string(), pa.float64()
    fields = {"run_id": texts, "skipped": texts, "gain": numbers, "chance": numbers}
    return pa.table([list(skipped), reasons, *both], schema=pa.schema(fields.items(), {_AS_OF: as_of}))


def _inputs(directory: SweepDir) -> bytes:
    digest = hashlib.sha256(__version__.encode())
    for path in (directory.site, *(directory.grid_of(plan) for plan in directory.plans())):
        digest.update(path.read_bytes() if path.is_file() else b"")
    sizes = [(path.name, path.stat().st_size) for path in (*directory.plans(), *directory.journals()) if path.is_file()]
    digest.update(repr(sizes).encode())
    return digest.hexdigest().encode()
