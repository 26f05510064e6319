"""When each node was held, and when each attempt began, measured and ended: the time line of a sweep. Pure.

Two tables, derived from the sweep's state and its records. `pilots.parquet`: a row per pilot and node.
`timeline.parquet`: a row per attempt that began. Attempts that run side by side in one pilot have different nodes, so
nothing overlaps.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sweep.records.schema import Column, Json

if TYPE_CHECKING:
    import pyarrow as pa

    from sweep.state.state import SweepState

ATTEMPTS: tuple[Column, ...] = (
    Column("run_id", "string", "", "the run"),
    Column("attempt", "int64", "", "1 for the first execution of the run"),
    Column("pilot", "string", "", "pilot that made the attempt"),
    Column("model", "string", "", "null while there is no record"),
    Column("node_names", "list<string>", "", "its nodes"),
    Column("outcome", "string", "", "null while it runs"),
    Column("started_at", "double", "unix s", "start order"),
    Column("first_at", "double", "unix s", "start of the first iteration"),
    Column("steady_at", "double", "unix s", "end of the first iteration: later iterations are steady"),
    Column("measured_at", "double", "unix s", "end of the last timed iteration"),
    Column("ended_at", "double", "unix s", "its nodes are clean"),
)
PILOTS: tuple[Column, ...] = (
    Column("pilot", "string", "", "name of the pilot"),
    Column("job_id", "string", "", "scheduler's job id"),
    Column("intended_at", "double", "unix s", "when the launcher decided to submit it"),
    Column("allocated_at", "double", "unix s", "when its agents were connected, null while it waits"),
    Column("ended_at", "double", "unix s", "its own last line, null where it wrote none"),
    Column("gone_at", "double", "unix s", "when the launcher found its job gone"),
    Column("heard_at", "double", "unix s", "the last line of its journal"),
    Column("time_limit_s", "double", "s", "wall time of its job"),
    Column("reason", "string", "", "why it ended, by itself or by the scheduler"),
    Column("node", "string", "", "one of its nodes, null while it has none"),
    Column("lost_at", "double", "unix s", "when the node failed, or could not be cleaned, and was no longer used"),
)


def pilot_rows(sweep_state: SweepState) -> list[dict[str, Any]]:
    """Rows of ``PILOTS``."""
    rows = []
    for name, pilot in sorted(sweep_state.pilots.items()):
        own_end = None if pilot.ended is None else pilot.ended_at
        of_pilot: dict[str, Any] = {"pilot": name, "job_id": pilot.job_id, "intended_at": pilot.intended_at or None}
        of_pilot |= {"allocated_at": pilot.started_at, "ended_at": own_end, "gone_at": pilot.gone_at}
        of_pilot |= {"heard_at": own_end or pilot.last_line_at, "time_limit_s": pilot.time_limit_s or None}
        of_pilot |= {"reason": pilot.ended or pilot.gone_reason or pilot.gone}
        lost = pilot.lost_at
        rows += [{**of_pilot, "node": node, "lost_at": lost.get(node or "")} for node in pilot.node_names or [None]]
    return rows


def running(sweep_state: SweepState, recorded: Container[tuple[str, int]]) -> list[dict[str, Any]]:
    """Rows of ``ATTEMPTS`` for those that began and are not among the ``recorded`` ones."""
    return [
        {"run_id": run_id, "attempt": number, "pilot": one.pilot, "node_names": one.nodes, "started_at": one.started_at}
        for run_id, run in sweep_state.runs.items()
        for number, one in run.attempts.items()
        if one.started_at is not None and (run_id, number) not in recorded
    ]


def attempts_table(results: pa.Table, begun: Sequence[Mapping[str, Json]], schema: pa.Schema) -> pa.Table:
    """Rows of ``ATTEMPTS``: the recorded attempts, then the running ones. ``results``: one row per attempt."""
    import pyarrow as pa
    import pyarrow.compute as pc

    at = {"started_at": results["started_at"]}
    steps = (("first_at", "start_s"), ("steady_at", "first_iteration_s"), ("measured_at", "measure_s"))
    for before, (name, duration) in zip(("started_at", "first_at", "steady_at"), steps, strict=True):
        at[name] = pc.add(at[before], results[duration])
    recorded = [at[name] if name in at else results[name] for name in schema.names]
    still = pa.Table.from_pylist([*begun], schema=schema)
    return pa.concat_tables([pa.Table.from_arrays(recorded, schema=schema), still])
