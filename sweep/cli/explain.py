"""`sweep explain`: why a run, or the program that wrote a log file, ended as it did, and what to try."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.errors import Mistake, SweepError
from sweep.outcomes import NO_FAILURE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sweep.store import SweepDir

_SHOWN = ("run_id", "attempt", "outcome", "message", "evidence", "advice", "node_names", "notes", "ended_at")


@click.command(short_help="Why a run ended as it did, and what to try.")
@click.argument("directory", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@click.argument("run", metavar="[RUN]", required=False)
@click.option(
    "--log", "log_file", type=click.Path(path_type=Path), help="Diagnose this log file instead of a run; - is stdin."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout and nothing else.")
def explain(directory: Path | None, run: str | None, log_file: Path | None, as_json: bool) -> int:
    """Say why a run ended as it did: the outcome, the line that proves it and what to try.

    RUN is a run id, its beginning, or RUN.ATTEMPT. With --log, any program's log file is diagnosed.

    \b
    Examples:
      sweep explain sweeps/first llama-8b-n4-dp4-tp8
      sweep explain --log slurm-4711.out
      sweep explain --log slurm-4711.out --json
    """
    if log_file is not None:
        if directory is not None:
            raise SweepError(Mistake("DIR and --log exclude each other", remedy="give --log FILE alone, or DIR RUN"))
        return _explain_log(log_file, as_json)
    if run is None:
        directory, run = None, None if directory is None else str(directory)
    if run is None:
        raise SweepError(Mistake("nothing to explain", remedy="`sweep explain DIR RUN` or `sweep explain --log FILE`"))
    return _explain_run(directory, run, as_json)


def _explain_log(log_file: Path, as_json: bool) -> int:
    from sweep.diagnose import diagnose_text
    from sweep.nccl_log import summarize

    text = _read(log_file)
    found = diagnose_text(text)
    document = {"outcome": str(found.outcome or NO_FAILURE), "evidence": found.evidence, "advice": found.advice}
    if as_json:
        click.echo(json.dumps(document, ensure_ascii=False))
        return 0
    _say(document)
    summary = summarize(text.splitlines())
    for finding in summary.findings if summary else ():
        click.echo(f"nccl:     {finding}")
    return 0


def _explain_run(directory: Path | None, run: str, as_json: bool) -> int:
    from sweep.store import find_sweep

    sweep = find_sweep(directory)
    records = _records_of(sweep, run)
    if as_json:
        click.echo(json.dumps([_document(sweep, record) for record in records], ensure_ascii=False))
        return 0
    for record in records:
        document = _document(sweep, record)
        click.echo(f"{document['run_id']}, attempt {document['attempt']}")
        _say(document)
        click.echo("")
    return 0


def _records_of(sweep: SweepDir, run: str) -> list[dict[str, Any]]:
    """The records of one run, by attempt. Raises SweepError where `run` names none, or several."""
    from sweep.store import JournalReader

    records = [event["record"] for event in JournalReader(sweep).new_events() if event.get("event") == "record"]
    chosen = [record for record in records if f"{record['run_id']}.{record['attempt']}" == run]
    chosen = chosen or [record for record in records if str(record["run_id"]) == run]
    chosen = chosen or [record for record in records if str(record["run_id"]).startswith(run)]
    names = sorted({str(record["run_id"]) for record in chosen})
    if len(names) != 1:
        raise _not_one(sweep, run, names, sorted({str(record["run_id"]) for record in records}))
    return sorted(chosen, key=lambda record: int(record["attempt"]))


def _not_one(sweep: SweepDir, run: str, names: Sequence[str], known: Sequence[str]) -> SweepError:
    if names:
        fact = f"{run!r} is the beginning of {len(names)} runs: {', '.join(names[:5])}"
        return SweepError(Mistake(fact, file=str(sweep.path), remedy="name one of them"))
    close = ", ".join(known[:5]) or "none"
    fact = f"no attempt of a run {run!r} has ended here"
    return SweepError(Mistake(fact, file=str(sweep.path), remedy=f"`sweep status` lists the runs; ended are {close}"))


def _document(sweep: SweepDir, record: dict[str, Any]) -> dict[str, Any]:
    document = {name: record.get(name) for name in _SHOWN}
    log = sweep.log(str(record["run_id"]), int(record["attempt"]))
    return {**document, "log": str(log) if log.exists() else None}


def _say(document: dict[str, Any]) -> None:
    for name in ("outcome", "message", "evidence", "advice", "log"):
        if document.get(name):
            click.echo(f"{name + ':':9} {document[name]}")


def _read(path: Path) -> str:
    if str(path) == "-":
        return sys.stdin.buffer.read().decode(errors="replace")
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise SweepError(
            Mistake(f"cannot read the log: {error.strerror}", file=str(path), remedy="name a readable file, or -")
        ) from error
