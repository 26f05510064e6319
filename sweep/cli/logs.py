"""`sweep logs`: the stored output of an attempt, or the output of a pilot itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli.command import SourcePath, SweepCommand
from sweep.cli.names import complete_run, json_option
from sweep.cli.sources import chosen_sweep, find_attempt
from sweep.errors import Mistake, SweepError

if TYPE_CHECKING:
    from sweep.state.state import SweepState
    from sweep.store.directory import SweepDir

PILOT_FILES = ("stdout", "stderr", "agents.log")
"""output of a pilot's job and its agents"""


@click.command(cls=SweepCommand)
@click.argument("directory", metavar="[DIR]", required=False, type=SourcePath(), shell_complete=complete_run)
@click.argument("run", metavar="[RUN]", required=False, shell_complete=complete_run)
@click.option("--pilot", metavar="NAME", help="Print the output of this pilot's job and agents instead, such as p0001.")
@json_option
def logs(directory: Path | None, run: str | None, pilot: str | None, as_json: bool) -> int:
    """Print an attempt's stored output: that of rank 0 if it was ok, the tail of every rank's if it failed.

    RUN is any unique part of a run_id, or RUN.ATTEMPT (default: the last one that started). If several runs match, they
    are listed. Escape sequences and control characters are shown as text, such as \\u001b[31m.

    \b
    Examples:
      sweep logs sweeps/first llama-8b-n4-dp4-tp8
      sweep logs sweeps/first 16b2f0c211.1
      sweep logs sweeps/first --pilot p0003
      sweep logs sweeps/first 16b2f0c211 --json | jq -r .text
    """
    if pilot is not None:
        if run is not None:
            raise SweepError(Mistake("--pilot excludes RUN", remedy="`sweep logs DIR --pilot NAME`"))
        return _show_pilot(chosen_sweep(directory), pilot, as_json)
    if run is None and directory is not None and not directory.is_dir():
        directory, run = None, str(directory)
    if run is None:
        raise SweepError(Mistake("no run is named", remedy="`sweep logs DIR RUN` or `sweep logs DIR --pilot NAME`"))
    return _show_attempt(chosen_sweep(directory), run, as_json)


def _show_attempt(directory: SweepDir, words: str, as_json: bool) -> int:
    from sweep.store.snapshot import read_state
    from sweep.store.sweep import open_sweep

    sweep_state = read_state(directory)
    known = [planned.run_id for planned in open_sweep(directory.path).runs]
    run_id, asked = find_attempt(known, words, directory.path, lambda run_id: _attempts_text(sweep_state, run_id))
    document = _document(directory, sweep_state, run_id, _attempt(directory, sweep_state, run_id, asked))
    if as_json:
        click.echo(json.dumps(document))
    elif document["text"] is not None:
        click.echo(f"{_head(document)}, stored in {document['path']}", err=True)
        click.echo(document["text"], nl=False)
    else:
        click.echo(f"{_head(document)}: {document['missing']}", err=True)
    return 0 if document["text"] is not None else 1


def _attempts_text(sweep_state: SweepState, run_id: str) -> str:
    """A run's attempts, for the list of candidates."""
    state = sweep_state.runs.get(run_id)
    last = state.last if state is not None else None
    if state is None or last is None:
        return " (not begun)"
    return f" ({len(state.attempts)} attempt{'s' * (len(state.attempts) > 1)}, {last.outcome or 'running'})"


def _attempt(directory: SweepDir, sweep_state: SweepState, run_id: str, asked: int | None) -> int:
    """The attempt to show. Raises SweepError if there is none."""
    state = sweep_state.runs.get(run_id)
    numbers = sorted(state.attempts) if state is not None else []
    if not numbers:
        remedy = "`sweep status` shows what runs and waits"
        raise SweepError(Mistake(f"no attempt of {run_id} has begun", file=str(directory.path), remedy=remedy))
    if asked is not None and asked not in numbers:
        fact = f"{run_id} has no attempt {asked}"
        raise SweepError(Mistake(fact, file=str(directory.path), remedy=f"it has {', '.join(map(str, numbers))}"))
    return asked or numbers[-1]


def _text(path: Path) -> str:
    """Its line ends, and carriage returns as those of a progress bar, as new lines."""
    return path.read_bytes().decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")


def _document(directory: SweepDir, sweep_state: SweepState, run_id: str, number: int) -> dict[str, Any]:
    state = sweep_state.runs[run_id]
    attempt = state.attempts[number]
    path = directory.log(run_id, number)
    text = _text(path) if path.is_file() else None
    if attempt.outcome is None:
        missing = f"it is measured now in pilot {attempt.pilot}, and its output is stored when it ends"
    else:
        missing = f"none of its output was stored ({attempt.message or 'no message'})"
    missing += f"; `sweep logs DIR --pilot {attempt.pilot}` shows what its pilot wrote"
    return {
        "run_id": run_id,
        "attempt": number,
        "attempts": sorted(state.attempts),
        "outcome": str(attempt.outcome) if attempt.outcome is not None else None,
        "message": attempt.message,
        "pilot": attempt.pilot,
        "nodes": list(attempt.nodes),
        "path": str(path) if text is not None else None,
        "text": text,
        "missing": missing if text is None else None,
    }


def _head(document: dict[str, Any]) -> str:
    others = [number for number in document["attempts"] if number != document["attempt"]]
    more = f" (also attempt {', '.join(map(str, others))})" if others else ""
    return f"{document['run_id']}, attempt {document['attempt']}{more}: {document['outcome'] or 'running'}"


def _show_pilot(directory: SweepDir, name: str, as_json: bool) -> int:
    """A pilot's own files, each under its name; 0 even if all are empty: a healthy pilot prints nothing."""
    names = sorted(path.name for path in (directory.path / "pilots").iterdir() if path.is_dir())
    if name not in names:
        remedy = f"there are {', '.join(names)}" if names else "none was submitted yet"
        raise SweepError(Mistake(f"no pilot {name[:60]!r}", file=str(directory.path), remedy=remedy))
    paths = [directory.pilot(name) / file for file in PILOT_FILES]
    texts = {str(path): _text(path) for path in paths if path.is_file()}
    if as_json:
        click.echo(json.dumps({"pilot": name, "files": texts}))
        return 0
    for path, text in texts.items():
        click.echo(f"{path}: {len(text.splitlines())} lines", err=True)
        click.echo(text, nl=bool(text) and not text.endswith("\n"))
    if not texts:
        click.echo(f"pilot {name} has written nothing yet", err=True)
    return 0
