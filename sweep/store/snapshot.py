"""The state rebuilt from the journals up to some offsets: the next reader continues from there.

Derived and safe to delete. One that is damaged, or does not fit the journals or this version, is ignored. The file is
a SHA-256 of its content, then the content: a flipped bit may decode to another state.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib

import msgspec

from sweep.state.exclusion import Ledger, MeasuredRun, NodeReport
from sweep.state.state import Attempt, PilotState, RunState, SweepState
from sweep.store.directory import SweepDir, write_derived
from sweep.store.journal import JournalReader

WORTH_EVENTS = 5000
"""a snapshot is written after this many new events"""
_KINDS = (SweepState, RunState, Attempt, PilotState, Ledger, MeasuredRun, NodeReport)
_FORM = " ".join(f"{kind.__name__}.{f.name}:{f.type}" for kind in _KINDS for f in dataclasses.fields(kind))
"""a snapshot by a version whose state has other fields is ignored"""
_DIGEST_BYTES = hashlib.sha256().digest_size


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """The search's result: the runs that must not start (``sweep.search.search.Search.skipped``)."""

    question: str
    """digest of all inputs of the result, except the runs' events"""
    at: float
    """unix seconds"""
    words: dict[str, str]
    """run_id -> why"""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The stored snapshot."""

    form: str = _FORM
    offsets: dict[str, int] = {}
    """journal's file name -> bytes that are in the state"""
    sweep_state: SweepState
    skipped: Skipped | None = None
    """as of these offsets"""


def load(directory: SweepDir) -> Snapshot:
    """The stored snapshot; an empty one where none fits."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        data = directory.snapshot.read_bytes()
        digest, content = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        if digest == hashlib.sha256(content).digest():
            stored = msgspec.msgpack.decode(content, type=Snapshot)
            sizes = {path.name: path.stat().st_size for path in directory.journals()}
            fits = all(sizes.get(name, -1) >= offset for name, offset in stored.offsets.items())
            if stored.form == _FORM and fits:
                return stored
    return Snapshot(sweep_state=SweepState())


def save(directory: SweepDir, snapshot: Snapshot) -> None:
    """Write it. Best effort: a process that may only read the directory, or finds it full, does without."""
    once = dataclasses.replace(snapshot.sweep_state, touched=list(dict.fromkeys(snapshot.sweep_state.touched)))
    with contextlib.suppress(OSError):
        content = msgspec.msgpack.encode(msgspec.structs.replace(snapshot, sweep_state=once))
        write_derived(directory.snapshot, hashlib.sha256(content).digest() + content)


def read_state(directory: SweepDir) -> SweepState:
    """The current state of a sweep, without its plans. Stores a snapshot if much had to be read."""
    stored = load(directory)
    reader = JournalReader(directory, stored.offsets)
    events = reader.new_events()
    stored.sweep_state.apply_all(events)
    if len(events) >= WORTH_EVENTS:
        save(directory, Snapshot(offsets=reader.offsets, sweep_state=stored.sweep_state))
    return stored.sweep_state
