"""The sweep directory's invariants: written once, one writer, torn lines, claims."""

import json
import os
import stat
import threading

import pytest

from sweep.errors import SweepError
from sweep.outcomes import Outcome
from sweep.pilot.channel import Rendezvous
from sweep.records.collect import collect
from sweep.state.events import PilotAlive, PilotEnded, RerunRequested, SessionAlive, SessionBegan, encode
from sweep.store import journal as journals
from sweep.store.directory import Claim, SweepDir, claims_of, find_sweep, try_claim, write_derived, write_once
from sweep.store.journal import Journal, JournalReader, read_events
from tests.support.launchers import Clock, written
from tests.support.made_sweeps import GRID, made, pilot_wrote


def test_a_file_is_written_once_and_its_first_content_stays_but_a_derived_one_is_replaced(tmp_path):
    write_once(tmp_path / "f", "first")
    with pytest.raises(FileExistsError):
        write_once(tmp_path / "f", "second")
    assert (tmp_path / "f").read_text() == "first"
    write_derived(tmp_path / "f", "derived")
    assert (tmp_path / "f").read_text() == "derived"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_of_many_claimants_one_wins(sweep):
    won = []
    barrier = threading.Barrier(16)

    def claim(name):
        barrier.wait()
        if try_claim(sweep, "run-1", 1, Claim(pilot=name, job_id="1", time=0.0)):
            won.append(name)

    threads = [threading.Thread(target=claim, args=(f"p{i}",)) for i in range(16)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(won) == 1
    assert json.loads(sweep.claim("run-1", 1).read_text())["pilot"] == won[0]
    assert [p.name for p in sweep.claims.iterdir()] == ["run-1.1"]


def test_the_claims_but_those_that_are_known(sweep):
    for run, pilot in (("a.b", "p1"), ("c", "p2"), ("d", "p1")):
        try_claim(sweep, run, 2, Claim(pilot=pilot, job_id="1", time=0.0))
    found = [(run, n, claim.pilot) for run, n, claim in claims_of(sweep, lambda run, n: (run, n) == ("c", 2))]
    assert found == [("a.b", 2, "p1"), ("d", 2, "p1")]


def test_a_journal_has_one_writer(sweep):
    Journal(sweep.journal("w"))
    with pytest.raises(FileExistsError):
        Journal(sweep.journal("w"))


FIRST, LAST = SessionBegan(time=1.0, epoch=1), RerunRequested(time=2.0, run_id="run-é", after=1)


def test_a_torn_last_line_is_left_for_the_next_read_and_then_read_whole(sweep, capsys):
    """Wherever it is cut: between the bytes of a letter too. Without its line end alone it is whole."""
    line = encode(LAST) + b"\n"
    for cut in range(1, len(line)):
        path = sweep.journal(f"cut-{cut}")
        Journal(path).append(FIRST)
        with path.open("ab") as file:
            file.write(line[:cut])
        events, offset = read_events(path)
        whole = cut == len(line) - 1
        assert events == ([FIRST, LAST] if whole else [FIRST])
        with path.open("ab") as file:
            file.write(line[cut:])
        assert read_events(path, offset) == ([] if whole else [LAST], path.stat().st_size)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("piece_bytes", [1, 8 << 20])
def test_a_line_that_is_no_event_is_reported_once_with_file_and_byte_and_all_around_it_is_read(
    sweep, monkeypatch, capsys, piece_bytes
):
    """An empty line is no corruption."""
    monkeypatch.setattr("sweep.store.journal.PIECE_BYTES", piece_bytes)
    path, reader = sweep.journal("w"), JournalReader(sweep)
    before, garbage, after = encode(FIRST) + b"\n\n \r\n", b"\0" * 40 + b"\n", encode(LAST) + b"\n"
    path.write_bytes(before + garbage + after + b'{"event":"cancel","ti\n' + after)
    assert reader.new_events() == [FIRST, LAST, LAST]
    places = (len(before), len(before + garbage + after))
    for place, error in zip(places, capsys.readouterr().err.splitlines(), strict=True):
        assert error.startswith(f"{path}: the line at byte {place} is skipped: ")
    with path.open("ab") as file:
        file.write(after)
    assert (reader.new_events(), reader.new_events()) == ([LAST], [])
    assert capsys.readouterr().err == ""


def test_reading_continues_where_corruption_cannot_be_reported(sweep, monkeypatch):
    class Full:
        def write(self, _text):
            raise OSError(28, "No space left on device")

        def flush(self):
            raise OSError(28, "No space left on device")

    path = sweep.journal("w")
    path.write_bytes(b"rubbish\n" + encode(LAST) + b"\n")
    monkeypatch.setattr("sys.stderr", Full())
    assert read_events(path)[0] == [LAST]


def test_a_refused_append_leaves_the_journal_as_it_was(sweep, monkeypatch):
    path = sweep.journal("w")
    journal = Journal(path)
    journal.append(FIRST)
    before = path.read_bytes()
    real = os.write
    monkeypatch.setattr("sweep.store.journal.os.write", lambda fd, data: real(fd, data[: len(data) // 2]))
    with pytest.raises(OSError, match="No space left"):
        journal.append(LAST)
    monkeypatch.undo()
    assert path.read_bytes() == before
    journal.append(LAST)
    assert read_events(path)[0] == [FIRST, LAST]


def test_a_reader_reads_each_line_once_and_in_order_of_time(sweep):
    one, two = Journal(sweep.journal("one")), Journal(sweep.journal("two"))
    reader = JournalReader(sweep)
    first, second, third, fourth = (SessionAlive(time=float(number)) for number in range(1, 5))
    two.append(second)
    one.append(third)
    one.append(first)
    assert reader.new_events() == [first, second, third]
    assert reader.new_events() == []
    two.append(fourth)
    assert reader.new_events() == [fourth]


def test_find_sweep_refuses_what_is_no_sweep(tmp_path):
    with pytest.raises(SweepError, match="not a sweep directory"):
        find_sweep(tmp_path)


def test_find_sweep_takes_the_newest(tmp_path, monkeypatch):
    for number, name in enumerate(["sweeps/old", "sweeps/new"]):
        (tmp_path / name).mkdir(parents=True)
        provenance = tmp_path / name / "provenance.json"
        provenance.write_text("{}")
        os.utime(provenance, (1000 + number, 1000 + number))
    monkeypatch.chdir(tmp_path)
    assert find_sweep(None).path == tmp_path / "sweeps" / "new"


def test_a_claim_that_was_made_before_an_error_is_ours(sweep):
    holder = Claim(pilot="p0001", job_id="7", time=5.0)
    assert try_claim(sweep, "r", 1, holder)
    assert try_claim(sweep, "r", 1, holder), "asked again after its answer was lost"
    assert not try_claim(sweep, "r", 1, Claim(pilot="p0002", job_id="7", time=5.0))


def test_a_link_whose_reply_was_lost_is_a_success_and_a_refused_one_is_not(tmp_path, monkeypatch):
    """NFS may repeat a request that succeeded, and report that the file exists already."""
    link = os.link

    def reply_lost(source, target):
        link(source, target)
        raise FileExistsError(target)

    def refused(_source, target):
        raise PermissionError(target)

    monkeypatch.setattr("sweep.store.directory.os.link", reply_lost)
    write_once(tmp_path / "f", "content")
    assert (tmp_path / "f").read_text() == "content"
    monkeypatch.setattr("sweep.store.directory.os.link", refused)
    with pytest.raises(PermissionError):
        write_once(tmp_path / "g", "content")


def test_where_one_journal_cannot_be_read_nothing_counts_as_read(sweep, monkeypatch):
    """What the file system cut off is read again, and what was read before it too: no event is lost or seen twice."""
    for name, event in (("one", FIRST), ("two", LAST)):
        Journal(sweep.journal(name)).append(event)
    reader = JournalReader(sweep)

    def fails_on_two(path, offset, decode):
        if path == sweep.journal("two"):
            raise OSError(5, "Input/output error")
        return read_events(path, offset, decode)

    monkeypatch.setattr("sweep.store.journal.read_events", fails_on_two)
    with pytest.raises(OSError, match="Input/output error"):
        reader.new_events()
    assert reader.offsets == {}
    monkeypatch.undo()
    assert reader.new_events() == [FIRST, LAST]
    assert reader.new_events() == []


def test_500_ended_pilots_cost_under_20_metadata_operations_a_second(sweep, monkeypatch):
    for number in range(500):
        name = f"p{number:04d}"
        last = PilotEnded if number % 2 else PilotAlive  # the others died without a last line
        extra = {"reason": "done"} if last is PilotEnded else {}
        written(sweep, f"pilot-{name}", last(time=1.0, pilot=name, **extra)).close()
    living = written(sweep, "pilot-p0500", PilotAlive(time=2.0, pilot="p0500"))
    clock, reader = Clock(monkeypatch, "sweep.store.journal"), JournalReader(sweep)
    assert len(reader.new_events()) == 501
    for _ in range(150):  # a minute until the dead ones are known to rest
        clock.now += 0.5
        reader.new_events()
    operations = []
    for name in ("stat", "scandir", "open"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *words, real=real, **how: operations.append(1) or real(*words, **how))
    read = 0
    for second in range(300):
        for _ in range(2):
            clock.now += 0.5
            read += len(reader.new_events())
        if second % 10 == 0:
            living.append(PilotAlive(time=3.0 + second, pilot="p0500"))
    assert read >= 29
    assert len(operations) / 300 < 20
    assert len(operations) > 300, "they were counted"
    written(sweep, "rerun-1", RerunRequested(time=9.0, run_id="r", after=1))
    assert len(reader.new_events()) == 1, "a new journal is read at once"
    monkeypatch.undo()


def test_a_late_line_of_a_resting_journal_is_read_when_all_is_asked_for(sweep, monkeypatch):
    journal = written(sweep, "pilot-p0001", PilotAlive(time=1.0, pilot="p0001"))
    clock, reader = Clock(monkeypatch, "sweep.store.journal"), JournalReader(sweep)
    reader.new_events()
    for _ in range(2):
        clock.now += journals.RESTS_S + 1
        reader.new_events()
    journal.append(PilotAlive(time=2.0, pilot="p0001"))
    assert reader.new_events() == []
    assert len(reader.new_events(resting=True)) == 1
    journal.append(PilotAlive(time=3.0, pilot="p0001"))
    assert len(reader.new_events()) == 1, "it rests no longer"


@pytest.mark.parametrize(("site", "directories", "files"), [("", 0o700, 0o600), ("umask: '0027'", 0o750, 0o640)])
def test_colleagues_may_read_what_the_sites_umask_allows_and_nothing_without_one(tmp_path, site, directories, files):
    """Whatever the umask of the process; the key of a pilot stays private."""
    before = os.umask(0o077)
    try:
        existing = made(tmp_path / "sweeps" / "s", GRID.replace("max_local_ranks: 8", site or "max_local_ranks: 8"))
        pilot_wrote(existing, "p0001", (existing.runs[0].run_id, 1, Outcome.OK))
        try_claim(existing.directory, "r", 1, Claim(pilot="p", job_id="1", time=0.0))
        collect(existing.directory)
        rendezvous = existing.directory.pilot("p0001") / "rendezvous"
        Rendezvous((), 1, b"key").write(rendezvous)
        modes = {path: stat.S_IMODE(path.stat().st_mode) for path in existing.directory.path.parent.rglob("*")}
    finally:
        os.umask(before)
    assert modes.pop(rendezvous) == 0o600
    modes = {path: mode for path, mode in modes.items() if path.parent.name != "pilots"}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {directories}
    assert {mode for path, mode in modes.items() if path.is_file()} == {files}


STATED = {"executor": "local", "sweep_id": "s"}


@pytest.mark.parametrize("text", ["", "{}", "not JSON", *(json.dumps({**STATED, "directory": d}) for d in ("", "/no"))])
def test_where_the_directory_of_its_launch_is_gone_or_not_stated_none_is_known(tmp_path, text):
    (tmp_path / "provenance.json").write_text(text)
    assert SweepDir(tmp_path).launched_from() is None
    assert SweepDir(tmp_path / "none").launched_from() is None
    (tmp_path / "provenance.json").write_text(json.dumps({**STATED, "directory": str(tmp_path)}))
    assert SweepDir(tmp_path).launched_from() == tmp_path
