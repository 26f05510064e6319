"""`sweep explain`: why a run, or the program that wrote a log file, ended as it did, and what to try."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli.command import InputPath, SourcePath, SweepCommand
from sweep.cli.explain_measured import NodesKnown, gap_lines, gap_of, measured, measured_lines
from sweep.cli.names import complete_run, json_option
from sweep.cli.sources import chosen_sweep, find_attempt, find_run, named
from sweep.errors import Mistake, SweepError
from sweep.library.sources import collected_results
from sweep.outcomes import NO_FAILURE, Outcome

if TYPE_CHECKING:
    from sweep.records.schema import Record
    from sweep.store.directory import SweepDir

_SHOWN = ("run_id", "attempt", "outcome", "message", "evidence", "advice", "node_names", "notes", "ended_at")


@click.command(cls=SweepCommand)
@click.argument("directory", metavar="[DIR]", required=False, type=SourcePath(), shell_complete=complete_run)
@click.argument("run", metavar="[RUN]", required=False, shell_complete=complete_run)
@click.option("--log", "log_file", type=InputPath(), help="Diagnose this log file instead of a run; - reads stdin.")
@click.option(
    "--gap", is_flag=True, help="Explain what separates the best configuration of each cell, or RUN, from peak FLOP/s."
)
@json_option
def explain(directory: Path | None, run: str | None, log_file: Path | None, gap: bool, as_json: bool) -> int:
    """Explain why a run ended as it did: the outcome, the log line that proves it, and what to try.

    RUN is any unique part of a run_id, or RUN.ATTEMPT. With --log, any program's log file is diagnosed. With --gap, the
    time of a step is compared with peak FLOP/s and the prediction, with the three likeliest causes of the difference;
    DIR may then be a results file.

    \b
    Examples:
      sweep explain sweeps/first llama-8b-n4-dp4-tp8
      sweep explain sweeps/first 16b2f0c211.2
      sweep explain --log slurm-4711.out
      sweep explain --log slurm-4711.out --json
      sweep explain sweeps/first --gap
      sweep explain results.parquet --gap
    """
    if log_file is not None:
        if directory is not None or gap:
            given = "--gap" if directory is None else "DIR"
            raise SweepError(
                Mistake(f"{given} and --log exclude each other", remedy="give --log FILE alone, or DIR RUN")
            )
        return _explain_log(log_file, as_json)
    if run is None and directory is not None and not (directory.is_dir() or (gap and directory.is_file())):
        directory, run = None, str(directory)
    if gap:
        return _explain_gap(directory, run, as_json)
    if run is None:
        raise SweepError(Mistake("nothing to explain", remedy="`sweep explain DIR RUN` or `sweep explain --log FILE`"))
    return _explain_run(directory, run, as_json)


def _explain_log(log_file: Path, as_json: bool) -> int:
    from sweep.diagnose.diagnose import diagnose_text
    from sweep.diagnose.nccl_log import summarize
    from sweep.files import read_log

    text = read_log(sys.stdin.buffer.read() if str(log_file) == "-" else log_file)
    diagnosis = diagnose_text(text)
    document = {
        "outcome": str(diagnosis.outcome or NO_FAILURE),
        "evidence": diagnosis.evidence,
        "advice": diagnosis.advice,
    }
    if as_json:
        click.echo(json.dumps(document, ensure_ascii=False))
        return 0
    _print(document)
    summary = summarize(text.splitlines())
    for finding in summary.findings if summary else ():
        click.echo(f"nccl:     {finding}")
    return 0


def _explain_gap(source: Path | None, run: str | None, as_json: bool) -> int:
    """Of a results file its records alone are known, without plan, site or logs."""
    from sweep.library.winners import winners
    from sweep.store.sweep import open_sweep

    ((place, directory),) = collected_results(named([] if source is None else [source]))
    sweep = None if directory is None else open_sweep(directory.path)
    known = {record.run_id: record for record in _measured_in(place if directory is None else directory.results)}
    if run is None:
        chosen = [row["run_id"] for row in winners([place]) if row["run_id"] in known]
    else:
        chosen = [find_run(list(known) if sweep is None else [each.run_id for each in sweep.runs], run, place)]
        if chosen[0] not in known:
            raise SweepError(Mistake(f"no attempt of {run} is ok", file=str(place), remedy="omit --gap"))
    nodes = NodesKnown(place, directory)
    gaps = [gap_of(sweep, known[run_id], nodes) for run_id in chosen]
    click.echo(json.dumps(gaps) if as_json else "\n\n".join("\n".join(gap_lines(one)) for one in gaps))
    return 0


def _measured_in(file: Path) -> list[Record]:
    """The records of a results file that have a step time, of each run the attempt that counts."""
    from sweep.files import check_columns, read_table
    from sweep.records.schema import Record, arrow_types

    table = read_table(file, types=arrow_types())
    needed = [field.name for field in dataclasses.fields(Record) if field.default is dataclasses.MISSING]
    check_columns(table, needed, file)
    rows = [row for row in table.to_pylist() if row.get("final", True)]
    records = [Record(**{name: row[name] for name in row if name in Record.__dataclass_fields__}) for row in rows]
    return [one for one in records if one.outcome in (Outcome.OK, None) and one.step_time_median_s]


def _explain_run(given: Path | None, run: str, as_json: bool) -> int:
    directory = chosen_sweep(given)
    records = _records_of(directory, run)
    if as_json:
        click.echo(json.dumps([_document(directory, record) for record in records], ensure_ascii=False))
        return 0
    for record in records:
        document = _document(directory, record)
        click.echo(f"{document['run_id']}, attempt {document['attempt']}")
        _print(document)
        if record.outcome == Outcome.OK:
            click.echo("\n".join(measured_lines(document["measured"], record)))
        click.echo("")
    return 0


def _records_of(directory: SweepDir, words: str) -> list[Record]:
    """The records of one run, by attempt. Raises SweepError if `words` match none, or several."""
    from sweep.records.record import decode_in_full
    from sweep.state.events import Recorded
    from sweep.state.retries import supersedes
    from sweep.store.journal import JournalReader
    from sweep.store.sweep import open_sweep

    run_ids = [planned.run_id for planned in open_sweep(directory.path).runs]
    run_id, attempt = find_attempt(run_ids, words, directory.path)
    ended: dict[int, Record] = {}
    for event in JournalReader(directory, decode=decode_in_full).new_events():
        if isinstance(event, Recorded) and event.record.run_id == run_id:
            record, known = event.record, ended.get(event.record.attempt)
            if supersedes(record.outcome, None if known is None else known.outcome):
                ended[record.attempt] = record
    chosen = [ended[number] for number in sorted(ended) if attempt in (None, number)]
    if not chosen:
        which = run_id if attempt is None else f"{run_id}.{attempt}"
        others = ", ".join(f"{run_id}.{number}" for number in sorted(ended))
        remedy = f"ended: {others}" if ended else "`sweep status`"
        raise SweepError(
            Mistake(f"no attempt {which} has ended in this sweep", file=str(directory.path), remedy=remedy)
        )
    return chosen


def _document(directory: SweepDir, record: Record) -> dict[str, Any]:
    log = directory.log(record.run_id, record.attempt)
    document = {**{name: getattr(record, name) for name in _SHOWN}, "log": str(log) if log.exists() else None}
    return document | ({"measured": measured(directory, record)} if record.outcome == Outcome.OK else {})


def _print(document: dict[str, Any]) -> None:
    for name in ("outcome", "message", "evidence", "advice", "log"):
        if document.get(name):
            click.echo(f"{name + ':':9} {document[name]}")
