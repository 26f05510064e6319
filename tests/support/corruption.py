"""Random damage to journals, as file systems and full disks do it, and what must be read of them all the same."""

import os
import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sweep.outcomes import Outcome
from sweep.state.events import (
    AttemptStarted,
    Event,
    NodeBad,
    PilotAlive,
    PilotEnded,
    PilotGone,
    PilotIntended,
    PilotStarted,
    PilotSubmitted,
    SessionBegan,
    SessionEnded,
)
from sweep.store.directory import Claim, try_claim, write_once
from sweep.store.lease import Process
from sweep.store.sweep import Sweep
from tests.support.launchers import written
from tests.support.made_records import made_record, record_event
from tests.support.made_sweeps import made

OLD_S = 3600.0
ENDS = (Outcome.OK, Outcome.HANG, Outcome.OOM_CUDA, Outcome.OK)


def ended_sweep(directory: Path) -> Sweep:
    """A sweep with one attempt of each run, in two pilots that ended; the launcher was killed after the second.

    Its times are whole seconds, so that its journals have the same length whenever it is made.
    """
    sweep, launcher, now = made(directory), [], float(int(time.time() - OLD_S))
    dead = Process(host=socket.gethostname(), pid=1, boot_id="an earlier boot", time=now)
    write_once(sweep.directory.leases / "launcher-0002", msgspec.json.encode(dead))
    launcher.append(SessionBegan(time=now, epoch=2, host="login", pid=1))
    for number, runs in enumerate((sweep.runs[:2], sweep.runs[2:]), start=1):
        name = f"p{number:04d}"
        sweep.directory.pilot(name).mkdir(mode=0o700)
        token = f"{sweep.sweep_id}-{name}"
        launcher.append(PilotIntended(time=now, pilot=name, token=token, nodes=2, time_limit_s=600))
        launcher.append(PilotSubmitted(time=now + 1, pilot=name, job_id=str(number)))
        events: list[Event] = [PilotStarted(time=now + 2, pilot=name, job_id=str(number), nodes=("n1", "n2"))]
        for planned, outcome in zip(runs, ENDS[2 * number - 2 :], strict=False):
            now += 10
            try_claim(sweep.directory, planned.run_id, 1, Claim(pilot=name, job_id=str(number), time=now))
            nodes = ("n1", "n2")[: planned.nodes]
            events.append(AttemptStarted(time=now, pilot=name, run_id=planned.run_id, attempt=1, nodes=nodes))
            record = made_record(planned.run(), pilot=name, outcome=outcome, started_at=now, node_names=nodes)
            events += [PilotAlive(time=now + 4, pilot=name), record_event(record, now + 5, ended_at=now + 5)]
        events.append(NodeBad(time=now + 6, node="n2", reason="not clean", pilot=name))
        events.append(PilotEnded(time=now + 7, pilot=name, reason="no remaining run fits"))
        written(sweep.directory, f"pilot-{name}", *events).close()
        launcher.append(PilotGone(time=now + 8, pilot=name, word="ENDED"))
    written(sweep.directory, "launcher-0002", *launcher, SessionEnded(time=now + 9)).close()
    return sweep


@dataclass(frozen=True, kw_only=True)
class Corruption:
    """What was done to a journal."""

    path: Path
    kind: str
    whole: tuple[bytes, ...]
    """the lines whose bytes all are still there, without line ends, in their order"""
    torn: range | None
    """the lines that were damaged, as byte positions of the new content; None where none was"""


def corrupt(path: Path, chance: random.Random) -> Corruption:
    """Damage the journal at random. Its new content is as old as its last event."""
    kinds: list[Callable[[bytes, random.Random], tuple[bytes, int, int]]] = [truncated, garbled, nulled, doubled, glued]
    act = chance.choice(kinds)
    before = path.read_bytes()
    after, begin, end = act(before, chance)
    path.write_bytes(after)
    os.utime(path, (time.time() - OLD_S, time.time() - OLD_S))
    lines, at, torn = [], 0, []
    for line in before.splitlines():
        newline = at + len(line)
        if begin < newline and end > at:
            torn.append(at)
        else:
            lines.append(line)
        if not torn and begin <= newline < end and after[newline : newline + 1] not in (b"", b"\n"):
            torn.append(at)  # whole, but the next line follows in the same one
        at = newline + 1
    hit = begin < len(after) or (torn and begin > torn[0])
    return Corruption(
        path=path,
        kind=act.__name__,
        whole=tuple(lines),
        torn=range(torn[0] if torn else begin, max(begin, end) + 1) if hit and (torn or act is glued) else None,
    )


def truncated(content: bytes, chance: random.Random) -> tuple[bytes, int, int]:
    at = chance.randrange(len(content))
    return content[:at], at, len(content)


def garbled(content: bytes, chance: random.Random) -> tuple[bytes, int, int]:
    begin = chance.randrange(len(content))
    end = min(len(content), begin + chance.choice((8, 60, 900, 6000)))
    return content[:begin] + chance.randbytes(end - begin) + content[end:], begin, end


def nulled(content: bytes, chance: random.Random) -> tuple[bytes, int, int]:
    begin = chance.randrange(len(content))
    end = min(len(content), begin + chance.choice((1, 60, 900, 4096)))
    return content[:begin] + b"\0" * (end - begin) + content[end:], begin, end


def doubled(content: bytes, chance: random.Random) -> tuple[bytes, int, int]:
    """A line is there once more, at the end or after any other."""
    lines = content.splitlines(keepends=True)
    lines.insert(chance.randrange(len(lines) + 1), chance.choice(lines))
    return b"".join(lines), len(content), len(content)


def glued(content: bytes, chance: random.Random) -> tuple[bytes, int, int]:
    """Half a line before a whole one: a short write that could not be undone."""
    lines = content.splitlines(keepends=True)
    at = chance.randrange(len(lines))
    half = chance.choice(lines)[:-1]
    begin = len(b"".join(lines[:at]))
    lines.insert(at, half[: chance.randrange(1, len(half))])
    return b"".join(lines), begin, begin
