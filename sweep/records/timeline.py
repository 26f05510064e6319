"""When each node was held, and when each attempt began, measured and ended: the time line of a sweep. Pure.

Two tables, derived from the journals alone. `pilots.parquet`: a row per pilot and node. `timeline.parquet`: a row
per attempt that began. Attempts that run side by side in one pilot have different nodes, so nothing overlaps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from sweep.outcomes import Outcome
from sweep.records.schema import Column, columns_of
from sweep.state.events import (
    AttemptStarted,
    Event,
    NodeBad,
    PilotEnded,
    PilotGone,
    PilotIntended,
    PilotStarted,
    PilotSubmitted,
    Recorded,
)

if TYPE_CHECKING:
    import pyarrow as pa

Cell: TypeAlias = str | int | float | list[str] | None
"""a value of a table's row"""
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


@dataclass
class PilotTimes:
    """One pilot's times: its columns of ``PILOTS``."""

    pilot: Annotated[str, "", "name of the pilot"]
    job_id: Annotated[str | None, "", "scheduler's job id"] = None
    intended_at: Annotated[float | None, "unix s", "when the launcher decided to submit it"] = None
    allocated_at: Annotated[float | None, "unix s", "when its agents were connected, null while it waits"] = None
    ended_at: Annotated[float | None, "unix s", "its own last line, null where it wrote none"] = None
    gone_at: Annotated[float | None, "unix s", "when the launcher found its job gone"] = None
    heard_at: Annotated[float | None, "unix s", "the last line of its journal"] = None
    time_limit_s: Annotated[float | None, "s", "wall time of its job"] = None
    reason: Annotated[str | None, "", "why it ended, by itself or by the scheduler"] = None


@dataclass
class Pilot(PilotTimes):
    """A pilot's times and nodes."""

    nodes: list[str] = field(default_factory=list)
    lost_at: dict[str, float] = field(default_factory=dict)
    """node -> when it failed, or could not be cleaned, and was no longer used"""

    def apply(self, event: PilotIntended | PilotSubmitted | PilotStarted | PilotEnded | PilotGone) -> None:
        """Note an event of this pilot."""
        match event:
            case PilotIntended():
                self.intended_at, self.time_limit_s = event.time, event.time_limit_s
            case PilotSubmitted():
                self.job_id = event.job_id
            case PilotStarted():
                self.allocated_at = event.time if self.allocated_at is None else self.allocated_at
                self.nodes, self.job_id = list(event.nodes), event.job_id
                self.time_limit_s = self.time_limit_s if event.time_limit_s is None else event.time_limit_s
            case PilotEnded():
                self.ended_at, self.reason = event.time, event.reason
            case PilotGone():
                self.gone_at = event.time
                if self.ended_at is None:
                    self.reason = event.reason or event.word


PILOTS: tuple[Column, ...] = (
    *columns_of(PilotTimes),
    Column("node", "string", "", "one of its nodes, null while it has none"),
    Column("lost_at", "double", "unix s", "when the node failed, or could not be cleaned, and was no longer used"),
)


@dataclass
class Timeline:
    """State rebuilt from events: pilots, and the attempts without a record yet."""

    pilots: dict[str, Pilot] = field(default_factory=dict)
    begun: dict[tuple[str, int], Mapping[str, Cell]] = field(default_factory=dict)
    """the running attempts: their ``ATTEMPTS`` columns so far"""

    def apply(self, event: Event) -> None:
        """Apply an event. Events of one journal come in order, journals in any order. Kinds without times: nothing."""
        match event:
            case PilotIntended() | PilotSubmitted() | PilotStarted() | PilotEnded() | PilotGone():
                self.pilot(event.pilot).apply(event)
            case AttemptStarted(run_id=run_id, attempt=attempt, pilot=pilot, nodes=nodes):
                about: dict[str, Cell] = {"run_id": run_id, "attempt": attempt, "pilot": pilot}
                self.begun[run_id, attempt] = {**about, "node_names": list(nodes), "started_at": event.time}
                for node in nodes:
                    self.pilot(pilot).lost_at.pop(node, None)
            case Recorded(record=record) if record.outcome is Outcome.NODE_FAIL:
                lost = dict.fromkeys(event.accused, record.ended_at or event.time)
                self.pilot(record.pilot).lost_at.update(lost)
            case NodeBad(pilot=str(pilot)):  # the user's exclusion takes no node from the pilot that holds it
                self.pilot(pilot).lost_at.setdefault(event.node, event.time)

    def note_line(self, pilot: str, time: float) -> None:
        """Note the time of a line in the pilot's journal."""
        of_pilot = self.pilot(pilot)
        of_pilot.heard_at = max(time, of_pilot.heard_at or time)

    def pilot(self, name: str) -> Pilot:
        """The pilot's times, empty where nothing is known yet."""
        return self.pilots.setdefault(name, Pilot(name))

    def pilot_rows(self) -> list[dict[str, Any]]:
        """Rows of ``PILOTS``."""
        rows = []
        for name in sorted(self.pilots):
            known = asdict(self.pilots[name])
            lost = known.pop("lost_at")
            rows += [{**known, "node": node, "lost_at": lost.get(node)} for node in known.pop("nodes") or [None]]
        return rows


def resumed(pilot_rows: Sequence[Mapping[str, Any]], open_attempts: Sequence[Mapping[str, Any]]) -> Timeline:
    """Restore the state from the two tables of an earlier collect."""
    line = Timeline()
    plain = [f.name for f in fields(PilotTimes)]
    for row in pilot_rows:
        pilot = line.pilots.setdefault(row["pilot"], Pilot(**{name: row[name] for name in plain}))
        if row["node"] is not None:
            pilot.nodes.append(row["node"])
        if row["lost_at"] is not None:
            pilot.lost_at[row["node"]] = row["lost_at"]
    line.begun = {(row["run_id"], row["attempt"]): row for row in open_attempts}
    return line


def attempts_table(results: pa.Table, begun: Sequence[Mapping[str, Cell]], schema: pa.Schema) -> pa.Table:
    """Rows of ``ATTEMPTS``: the recorded attempts, then the running ones. ``results``: one row per attempt."""
    import pyarrow as pa
    import pyarrow.compute as pc

    at = {"started_at": results["started_at"]}
    steps = (("first_at", "start_s"), ("steady_at", "first_iteration_s"), ("measured_at", "measure_s"))
    for before, (name, duration) in zip(("started_at", "first_at", "steady_at"), steps, strict=True):
        at[name] = pc.add(at[before], results[duration])
    recorded = [at[name] if name in at else results[name] for name in schema.names]
    running = pa.Table.from_pylist([*begun], schema=schema)
    return pa.concat_tables([pa.Table.from_arrays(recorded, schema=schema), running])
