"""Collects the journals' records into one table, `results.parquet`: derived, safe to delete.

Next to it is that of the runs which will not be started (`sweep.records.skipped`).

The table's metadata stores how far each journal was read. A later collect reads only what was
appended since. Any inconsistency (another schema, a journal that became shorter, a
damaged table) makes it start from scratch.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.contract import node_group_of
from sweep.errors import Mistake, SweepError
from sweep.files import parquet_of, read_table, write_whole
from sweep.outcomes import Outcome
from sweep.plugins import WORKLOAD
from sweep.records.record import decode_in_full, problems
from sweep.records.schema import COLLECTED, COLUMNS, SCHEMA_VERSION, Record, arrow_type, arrow_types
from sweep.records.skipped import update_skipped
from sweep.records.validity import NOTE, disagreements, tolerance_of
from sweep.state.events import Recorded, RerunRequested
from sweep.state.retries import attempt_that_counts, supersedes
from sweep.store.directory import SweepDir, find_sweep, write_derived
from sweep.store.journal import event_pieces
from sweep.store.place import view_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd
    import pyarrow as pa


SAME_TRAINING = ("workload", "model", "shape_json", "sequence_length", "global_batch_tokens", "dtype", "params_json")
"""Records equal in these, whatever their layout, train the same model on the same tokens"""

METADATA = b"sweep"
"""Key of the table's metadata: schema version, journal offsets, reruns asked for."""

_NAMES = [column.name for column in COLUMNS]


@dataclass(frozen=True)
class JournalProgress:
    """How far the journals have been collected."""

    offsets: Mapping[str, int] = field(default_factory=dict)
    """journal's file name -> bytes read"""
    rerun_after: Mapping[str, int] = field(default_factory=dict)
    """run_id -> number of its latest attempt when the user last asked to measure it again"""


@dataclass(frozen=True, kw_only=True)
class Collected:
    """The result of a collect."""

    path: Path
    attempts: int
    """rows of the table"""
    new: int
    """records read by this collect"""
    runs: int
    outcomes: Mapping[str, int]
    """outcome -> runs whose final attempt ended so"""


def collect(directory: SweepDir) -> Collected:
    """Bring `results.parquet` up to date with the journals.

    A line that is no event, or a record that breaks the schema, is reported on stderr and passed over. Raises
    SweepError where a record's numbers do not fit the table.
    """
    table, progress = _earlier(directory)
    fresh, progress_now = _read_journals(directory, progress)
    new = sum(batch.num_rows for batch in fresh)
    site = directory.site
    prices = prices_of(site.read_text(encoding="utf-8") if site.exists() else "", str(site))
    same_prices = table is not None and table.select(KEYS).equals(priced(table, prices).select(KEYS))
    if table is None or progress_now != progress or not same_prices:
        finished = _finish([*([] if table is None else [table]), *fresh], progress_now.rerun_after)
        if table is not None and _marked(table) - _marked(finished):
            # A mark is gone, and the table does not say whether the record was suspect before it: its journal does
            fresh, progress_now = _read_journals(directory, JournalProgress())
            finished = _finish(fresh, progress_now.rerun_after)
        table = priced(finished, prices)
        write_derived(directory.results, _parquet(table, progress_now))
    update_skipped(directory)
    rows = table.select(["final", "outcome"]).to_pydict()
    outcomes = Counter(o for o, final in zip(rows["outcome"], rows["final"], strict=True) if final)
    return Collected(
        path=directory.results,
        attempts=table.num_rows,
        new=new,
        runs=sum(outcomes.values()),
        outcomes=dict(outcomes.most_common()),
    )


def read_records(source: Path | str) -> pd.DataFrame:
    """All records of a sweep directory, or of a results file, as a DataFrame: a row per attempt, see docs/records.md.

    Of a directory, the latest attempts are collected first. Raises SweepError as ``collect`` does, and where there is
    no sweep.
    """
    path = Path(source) if Path(source).is_file() else collect(view_of(find_sweep(Path(source)))).path
    frame: pd.DataFrame = read_table(path).replace_schema_metadata().to_pandas()
    return frame


def table_of(records: Sequence[Record], file: str | None = None) -> pa.Table:
    """Records as a table of the schema; columns that collect adds are null.

    Raises SweepError naming each record that breaks the schema.
    """
    import pyarrow as pa

    schema = _schema()
    values = dict(zip(_NAMES, zip(*map(attrgetter(*_NAMES), records), strict=True), strict=False))
    nothing = [None] * len(records)
    try:
        arrays = [pa.array(values.get(f.name, nothing), type=f.type) for f in schema]
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        found = [
            Mistake(text, file=file, path=f"{record.run_id}.{record.attempt}")
            for record in records
            for text in problems(record)
        ]
        raise SweepError(found or [Mistake(f"records do not fit the schema: {error}", file=file)]) from error
    return pa.Table.from_arrays(arrays, schema=schema)


def write_results(
    path: Path, records: Sequence[Record], extend: Callable[[pa.Table], pa.Table] = lambda table: table
) -> None:
    """Write a results file from records without a journal, such as an import's. ``extend``: adds columns."""
    write_whole(path, _parquet(extend(_finish([table_of(records)], {})), JournalProgress()))


def _earlier(directory: SweepDir) -> tuple[pa.Table | None, JournalProgress]:
    """The existing results and how far they reach; none where they are unusable: damaged, of another schema, or of
    journals that became shorter since.
    """
    with contextlib.suppress(OSError, KeyError, ValueError, RecursionError, SweepError):
        results = read_table(directory.results, types=arrow_types())
        state = json.loads((results.schema.metadata or {})[METADATA])
        same = results.schema.equals(_schema()) and state["schema"] == SCHEMA_VERSION
        sizes = {path.name: path.stat().st_size for path in directory.journals()}
        if same and all(sizes.get(name, -1) >= offset for name, offset in state["offsets"].items()):
            return results, JournalProgress(state["offsets"], state["rerun_after"])
    return None, JournalProgress()


def _read_journals(directory: SweepDir, progress: JournalProgress) -> tuple[list[pa.Table], JournalProgress]:
    """The records appended since, and how far the journals are read now."""
    offsets, rerun_after, tables = dict(progress.offsets), dict(progress.rerun_after), []
    for path in directory.journals():
        offset = offsets.get(path.name, 0)
        if path.stat().st_size == offset:
            continue
        for events, end in event_pieces(path, offset, decode_in_full):
            offsets[path.name] = end
            for event in events:
                if isinstance(event, RerunRequested):
                    rerun_after[event.run_id] = max(rerun_after.get(event.run_id, event.after), event.after)
            if records := [event.record for event in events if isinstance(event, Recorded)]:
                tables.append(table_of(records, str(path)))
    return tables, JournalProgress(offsets, rerun_after)


def _finish(parts: Sequence[pa.Table], rerun_after: Mapping[str, int]) -> pa.Table:
    """One row per attempt, in order of time, with the columns `final` and `surplus`."""
    import pyarrow as pa

    table = pa.concat_tables(parts) if parts else table_of([])
    keys = table.select(["run_id", "attempt", "outcome", "started_at"]).to_pandas()
    chosen = keys.loc[one_row_per_attempt(keys)]
    verdicts = which_count(chosen, rerun_after)
    table = table.take(pa.array(chosen.index))
    for name in ("final", "surplus"):
        table = _with_column(table, name, verdicts[name])
    return _with_suspects(table)


def _with_column(table: pa.Table, name: str, values: Any) -> pa.Table:
    """The table with other values in that column of the schema."""
    import pyarrow as pa

    column = table.schema.field(name)
    return table.set_column(table.schema.get_field_index(name), column, pa.array(values, type=column.type))


def _marked(table: pa.Table) -> set[tuple[str, int]]:
    """(run_id, attempt) of the records that are marked since their losses differ."""
    columns = table.select(["run_id", "attempt", "notes"]).to_pydict()
    rows = zip(columns["run_id"], columns["attempt"], columns["notes"], strict=True)
    return {(run_id, attempt) for run_id, attempt, notes in rows if any(n.startswith(NOTE) for n in notes or ())}


def _with_suspects(table: pa.Table) -> pa.Table:
    """Mark the records whose losses differ from the model's other layouts; marks of an earlier collect are removed."""
    import pyarrow as pa

    ok = [i for i, outcome in enumerate(table["outcome"].to_pylist()) if outcome == str(Outcome.OK)]
    rows = table.select([*SAME_TRAINING, "losses"]).take(pa.array(ok, type=pa.int64())).to_pydict()
    same = list(zip(*(rows[name] for name in SAME_TRAINING), strict=True))
    workloads = list(zip(rows["workload"], rows["params_json"], strict=True))
    same_start_of = {key: _same_start(*key) for key in set(workloads)}
    pairs = zip(rows["dtype"], workloads, strict=True)
    tolerances = [tolerance_of(dtype, same_start=same_start_of[key]) for dtype, key in pairs]
    found = {ok[i]: note for i, note in disagreements(same, rows["losses"], tolerances).items()}
    earlier = [old or [] for old in table["notes"].to_pylist()]
    notes = [[n for n in old if not n.startswith(NOTE)] for old in earlier]
    for i, note in found.items():
        notes[i].append(note)
    if notes == earlier:
        return table
    suspects = [bool(suspect) or i in found for i, suspect in enumerate(table["suspect"].to_pylist())]
    return _with_column(_with_column(table, "notes", notes), "suspect", suspects)


def _same_start(workload: str, params_json: str | None) -> bool:
    """Whether a workload's layouts start from the same weights; assumed if it is not installed here.

    A workload that starts any script has a parameter of this name: only its user can know.
    """
    try:
        declared = WORKLOAD.find(workload)
    except SweepError:
        return True
    given = json.loads(params_json or "{}")
    return bool(given.get("same_start", declared.params.get("same_start", declared.same_start)))


def one_row_per_attempt(keys: pd.DataFrame) -> pd.Index:
    """The rows to keep, ordered by start: of several records of one attempt, the one that counts."""
    several = keys.index[keys.duplicated(["run_id", "attempt"], keep=False)]
    counted: dict[tuple[str, int], tuple[int, Outcome]] = {}
    for row, run_id, attempt, text in keys.loc[several, ["run_id", "attempt", "outcome"]].itertuples():
        outcome, known = Outcome(text), counted.get((run_id, attempt))
        if supersedes(outcome, None if known is None else known[1]):
            counted[run_id, attempt] = row, outcome
    left = keys.drop(several.difference([row for row, _ in counted.values()]))
    ordered: pd.Index = left.sort_values(["started_at", "run_id", "attempt"]).index
    return ordered


def which_count(rows: pd.DataFrame, rerun_after: Mapping[str, int]) -> pd.DataFrame:
    """`final` and `surplus` per attempt: the one that counts, and those after it where it is ok."""
    of_runs: dict[str, list[tuple[int, Outcome | None, int]]] = defaultdict(list)
    several = rows.loc[rows["run_id"].duplicated(keep=False), ["run_id", "attempt", "outcome"]]
    for row, run_id, attempt, outcome in several.itertuples():
        of_runs[run_id].append((attempt, Outcome(outcome), row))
    others, surplus = [], []
    for run_id, ended in of_runs.items():
        counts = attempt_that_counts([(attempt, outcome) for attempt, outcome, _ in ended], rerun_after.get(run_id, 0))
        others += [row for attempt, _, row in ended if attempt != counts]
        if counts is not None:  # where none is ok it is the last
            surplus += [row for attempt, _, row in ended if attempt > counts]
    verdicts: pd.DataFrame = rows[[]].assign(final=True, surplus=False)
    verdicts.loc[others, "final"] = False
    verdicts.loc[surplus, "surplus"] = True
    return verdicts


def _parquet(table: pa.Table, progress: JournalProgress) -> bytes:
    state = {"schema": SCHEMA_VERSION, "offsets": progress.offsets, "rerun_after": progress.rerun_after}
    return parquet_of(table.replace_schema_metadata({METADATA: json.dumps(state).encode()}))


def _schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [
            pa.field(column.name, arrow_type(column.type), metadata={"unit": column.unit, "meaning": column.meaning})
            for column in COLUMNS + COLLECTED
        ]
    )


KEYS = ("dollars_per_gpu_hour", "co2_g_per_kwh", "failures_per_gpu_day", "restart_time")
"""of the site file, and columns of the results"""

Prices = Mapping[str, Mapping[str, float | None]]
"""key -> node group -> its price, which may change later; the group "" is that of a site without groups"""


def prices_of(text: str, file: str) -> Prices:
    """What the text of a site file states. ``file``: its name, for SweepError where it is not valid."""
    if not any(key in text for key in KEYS):
        return {}
    from sweep.inputs.site import parse_site

    parts = parse_site(text, file).parts
    return {key: {group: getattr(part, key) for group, part in parts.items()} for key in KEYS}


def priced(table: pa.Table, prices: Prices) -> pa.Table:
    """The table with a column for each price, by the node group of each row's model."""
    groups = [node_group_of(model) for model in table["model"].to_pylist()] if prices else [""] * table.num_rows
    for key in KEYS:
        of_group = prices.get(key, {})
        table = _with_column(table, key, [of_group.get(group) for group in groups])
    return table
