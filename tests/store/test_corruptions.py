"""200 random corruptions of journals: every reader and the launcher go on, and nothing that is whole is lost."""

import dataclasses
import random
import re
import shutil
import time

import pytest

from sweep.executors.executor import SubmitError
from sweep.launcher.launcher import Launcher
from sweep.launcher.loop import Loop
from sweep.records.collect import collect
from sweep.state.events import PilotAlive, Recorded, decode, encode
from sweep.state.state import SweepState
from sweep.store.directory import SweepDir
from sweep.store.journal import JournalReader
from sweep.store.place import adopt
from sweep.store.snapshot import read_state
from tests.support import driving
from tests.support.corruption import corrupt, ended_sweep
from tests.support.launchers import Scheduler

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
    """The file and a byte of the damaged lines."""
    places = [int(place) for place in re.findall(rf"{re.escape(str(done.path))}: the .*at byte (\d+)", err)]
    if done.torn is None:
        assert places == [], (done, err)
    else:
        assert places, (done, err)
        assert min(places) in done.torn, (done, err)


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


def test_a_reader_that_read_the_journal_before_reads_what_is_appended_later(original, tmp_path, capsys):
    """Also where the file became shorter, and its writer goes on after half a line."""
    for seed in range(CORRUPTIONS):
        directory = SweepDir(tmp_path / str(seed))
        shutil.copytree(original.directory.path, directory.path)
        reader, chance = JournalReader(directory), random.Random(seed)
        before = reader.new_events()
        sweep = dataclasses.replace(original, directory=directory)
        sweep.refresh()
        done = corrupt(chance.choice([path for path in directory.journals() if path.stat().st_size > 200]), chance)
        later = PilotAlive(time=time.time(), pilot="p0001")
        with done.path.open("ab") as file:
            file.write(encode(later) + b"\n")
        fresh = reader.new_events(resting=True)
        assert later in fresh, (seed, done)
        assert done.kind != "truncated" or "was changed before byte" in capsys.readouterr().err, (seed, done)
        assert {encode(event) for event in fresh} <= {encode(event) for event in [*before, later]}
        heartbeats = sweep.sweep_state.pilots["p0001"].heartbeats
        runs, cancelled = dict(sweep.sweep_state.runs), sweep.sweep_state.cancelled
        sweep.refresh(resting=True)
        assert sweep.sweep_state.pilots["p0001"].heartbeats > heartbeats
        assert (sweep.sweep_state.runs, sweep.sweep_state.cancelled) == (runs, cancelled)
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
