"""The one stored file of an attempt's output, whatever the number of ranks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from sweep.diagnose.model import RankEnd
from sweep.errors import log_error
from sweep.outcomes import Outcome
from sweep.records.schema import Record
from sweep.store.directory import write_derived


def attempt_log(record: Record, ranks: Sequence[RankEnd]) -> str:
    """Rank 0's output of a success; every rank's exit, exception and stacks of a failure."""
    head = f"# {record.run_id}.{record.attempt}: {record.outcome}"
    parts = [head + (f": {record.message}" if record.message else "")]
    if record.outcome is Outcome.OK:
        return "\n".join([*parts, _section(ranks[0], "output"), ranks[0].log_tail])
    for rank in ranks:
        parts += [_section(rank, "output"), rank.log_tail]
        if rank.failure is not None and rank.failure["traceback"] not in rank.log_tail:
            parts += [_section(rank, "exception"), rank.failure["traceback"]]
        if rank.stacks:
            parts += [_section(rank, "stacks before the kill"), rank.stacks]
    return "\n".join(parts) + "\n"


def _section(rank: RankEnd, what: str) -> str:
    if rank.killed_by_us:
        end = "ended by the pilot"
    elif rank.signal is not None:
        end = f"signal {rank.signal}"
    elif rank.exit_code is not None:
        end = f"exit code {rank.exit_code}"
    else:
        end = "end unknown"
    progress = f"; {rank.progress}" if rank.progress else ""
    return f"## rank {rank.rank} on {rank.node} ({end}{progress}): {what}"


async def store_log(path: Path, record: Record, ranks: Sequence[RankEnd]) -> None:
    """Write it, in a thread. Best effort: the record matters more than its log."""
    try:
        await asyncio.to_thread(lambda: write_derived(path, attempt_log(record, ranks)))
    except Exception as error:
        log_error(f"cannot write the log of {record.run_id}.{record.attempt}: {error!r}")
