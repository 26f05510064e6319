"""200 random corruptions of journals: every reader and the launcher go on, and nothing that is whole is lost."""

import dataclasses
import os
import random
import re
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from sweep.executors.executor import SubmitError
from sweep.launcher.launcher import Launcher
from sweep.launcher.loop import Loop
from sweep.outcomes import Outcome
from sweep.records.collect import collect
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
    Recorded,
    SessionBegan,
    SessionEnded,
    decode,
    encode,
)
from sweep.state.state import SweepState
from sweep.store.directory import Claim, SweepDir, try_claim, write_once
from sweep.store.journal import JournalReader
from sweep.store.lease import Process
from sweep.store.place import adopt
from sweep.store.snapshot import read_state
from sweep.store.sweep import Sweep
from tests.support import driving
from tests.support.launchers import Scheduler, written
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
    whole: tuple[bytes, ...]
    """the lines whose bytes all are still there, without line ends, in their order"""
    torn: bool
    """there is a line that is none of those before"""


def corrupt(path: Path, chance: random.Random) -> Corruption:
    """Damage the journal at random. Its new content is as old as its last event."""
    kinds: list[Callable[[bytes, random.Random], bytes]] = [truncated, garbled, nulled, doubled, glued]
    before = path.read_bytes()
    after, lines = chance.choice(kinds)(before, chance), before.splitlines()
    path.write_bytes(after)
    os.utime(path, (time.time() - OLD_S, time.time() - OLD_S))
    whole = tuple(line for line in lines if line in after)
    torn = any(line.strip() and line not in lines for line in after.split(b"\n"))
    return Corruption(path=path, whole=whole, torn=torn)


def truncated(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def garbled(content: bytes, chance: random.Random) -> bytes:
    begin = chance.randrange(len(content))
    end = min(len(content), begin + chance.choice((8, 60, 900, 6000)))
    return content[:begin] + chance.randbytes(end - begin) + content[end:]


def nulled(content: bytes, chance: random.Random) -> bytes:
    begin = chance.randrange(len(content))
    end = min(len(content), begin + chance.choice((1, 60, 900, 4096)))
    return content[:begin] + b"\0" * (end - begin) + content[end:]


def doubled(content: bytes, chance: random.Random) -> bytes:
    """A line is there once more, at the end or after any other."""
    lines = content.splitlines(keepends=True)
    lines.insert(chance.randrange(len(lines) + 1), chance.choice(lines))
    return b"".join(lines)


def glued(content: bytes, chance: random.Random) -> bytes:
    """Half a line before a whole one: a short write that could not be undone."""
    lines = content.splitlines(keepends=True)
    half = chance.choice(lines)[:-1]
    lines.insert(chance.randrange(len(lines)), half[: chance.randrange(1, len(half))])
    return b"".join(lines)


CORRUPTIONS = 200
COLLECTED = 20
"""so many of them are collected too: a table takes longer than the rest"""


class Gone(Scheduler):
    """Has none of the jobs, and takes no further one."""

    def submit(self, request):
        raise SubmitError("not today", retry=True)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return ended_sweep(tmp_path_factory.mktemp("original") / "s")


def damaged(original, tmp_path, seed):
    """A copy of the sweep with one journal corrupted: (its directory, what was done)."""
    directory = SweepDir(tmp_path / str(seed))
    shutil.copytree(original.directory.path, directory.path)
    adopt(directory)
    chance = random.Random(seed)
    path = chance.choice([path for path in directory.journals() if path.stat().st_size > 200])
    return directory, corrupt(path, chance)


def assert_reported(err, done):
    """The file is named where a line of it was damaged, and only there."""
    assert bool(re.findall(rf"{re.escape(str(done.path))}: the .*at byte \d+", err)) == done.torn, (done, err)


def test_readers_read_all_that_is_whole_and_report_the_rest(original, tmp_path, capsys):
    for seed in range(CORRUPTIONS):
        directory, done = damaged(original, tmp_path, seed)
        events = JournalReader(directory).new_events()
        assert_reported(capsys.readouterr().err, done)
        others = [path for path in directory.journals() if path != done.path]
        expected = [encode(decode(line)) for line in done.whole]
        expected += [encode(decode(line)) for path in others for line in path.read_bytes().splitlines()]
        read = [encode(event) for event in events]
        assert set(expected) == set(read), (seed, done)
        state = read_state(directory)
        healthy = SweepState()
        healthy.apply_all(sorted((decode(line) for line in expected), key=lambda event: event.time))
        assert (state.runs, state.pilots.keys()) == (healthy.runs, healthy.pilots.keys()), (seed, done)
        assert state.excluded_nodes == healthy.excluded_nodes
        if seed < COLLECTED:
            records = {event.record.run_id for event in map(decode, expected) if isinstance(event, Recorded)}
            assert collect(directory).attempts == len(records), (seed, done)
        shutil.rmtree(directory.path)


@pytest.mark.parametrize(
    "seeds", [range(0, CORRUPTIONS, 5), pytest.param(range(CORRUPTIONS), marks=pytest.mark.long)], ids=["some", "all"]
)
def test_the_launcher_goes_on_and_marks_what_has_no_record_left(original, tmp_path, seeds):
    for seed in seeds:
        directory, done = damaged(original, tmp_path, seed)
        launcher = Launcher(dataclasses.replace(original, directory=directory), executor=Gone())
        loop = Loop(launcher)
        loop._watch._poll_s = 0.0
        for _ in range(3):
            loop.step()
        state = launcher.sweep.sweep_state
        assert not [pilot.name for pilot in state.pilots.values() if pilot.open and pilot.name <= "p0002"], (seed, done)
        first = [run.attempts[1].outcome for run in state.runs.values()]
        assert len(first) == 4, (seed, done)
        assert None not in first, (seed, done)
        launcher.close()
        whole = {(e.record.run_id, e.record.outcome) for e in map(decode, done.whole) if isinstance(e, Recorded)}
        assert whole <= {(run_id, run.attempts[1].outcome) for run_id, run in state.runs.items()}
        shutil.rmtree(directory.path)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 8))])
def test_commands_and_a_real_resume_on_a_damaged_sweep(original, tmp_path, command, seed):
    directory, done = damaged(original, tmp_path, seed)
    reported = ""
    for words in (("status",), ("status", "--json"), ("nodes",), ("collect",), ("cancel",)):
        code, _, err = command(words[0], directory.path, *words[1:])
        assert code == 0, (words, done, err)
        reported += err
    assert_reported(reported, done)
    ended = driving.run("resume", directory.path)
    assert ended.returncode == 0, (done, ended.stderr)
    assert "Traceback" not in ended.stderr
