"""The sweep directory's invariants: written once, one writer, torn lines, claims."""

import json
import os
import stat
import threading

import pytest

from sweep.errors import SweepError
from sweep.store.directory import SweepDir, claims_of, find_sweep, try_claim, write_derived, write_once
from sweep.store.journal import Journal, JournalReader, read_events


@pytest.fixture
def sweep(tmp_path):
    directory = SweepDir(tmp_path / "s")
    directory.create_skeleton()
    return directory


def test_a_file_is_written_once_and_its_first_content_stays(tmp_path):
    write_once(tmp_path / "f", "first")
    with pytest.raises(FileExistsError):
        write_once(tmp_path / "f", "second")
    assert (tmp_path / "f").read_text() == "first"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_derived_file_is_replaced_whole(tmp_path):
    write_derived(tmp_path / "f", "first")
    write_derived(tmp_path / "f", "second")
    assert (tmp_path / "f").read_text() == "second"


def test_files_and_directories_are_private(sweep):
    write_once(sweep.claims / "c", "x")
    journal = Journal(sweep.journal("w"))
    journal.append({"event": "x", "time": 0})
    assert stat.S_IMODE((sweep.claims / "c").stat().st_mode) == 0o600
    assert stat.S_IMODE(sweep.journal("w").stat().st_mode) == 0o600
    assert stat.S_IMODE(sweep.claims.stat().st_mode) == 0o700


def test_of_many_claimants_one_wins(sweep):
    won = []
    barrier = threading.Barrier(16)

    def claim(name):
        barrier.wait()
        if try_claim(sweep, "run-1", 1, {"pilot": name, "job_id": "1", "time": 0}):
            won.append(name)

    threads = [threading.Thread(target=claim, args=(f"p{i}",)) for i in range(16)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(won) == 1
    assert json.loads(sweep.claim("run-1", 1).read_text())["pilot"] == won[0]
    assert [p.name for p in sweep.claims.iterdir()] == ["run-1.1"]


def test_the_claims_but_those_that_are_known(sweep):
    for run, pilot in (("a.b", "p1"), ("c", "p2"), ("d", "p1")):
        try_claim(sweep, run, 2, {"pilot": pilot, "job_id": "1", "time": 0})
    assert [(run, n) for run, n, _ in claims_of(sweep, lambda run, n: (run, n) == ("c", 2))] == [("a.b", 2), ("d", 2)]


def test_a_journal_has_one_writer(sweep):
    Journal(sweep.journal("w"))
    with pytest.raises(FileExistsError):
        Journal(sweep.journal("w"))


def test_a_torn_last_line_is_left_for_the_next_look(sweep):
    path = sweep.journal("w")
    journal = Journal(path)
    journal.append({"event": "a", "time": 1})
    with path.open("ab") as file:
        file.write(b'{"event": "b", "ti')
    events, offset = read_events(path)
    assert [e["event"] for e in events] == ["a"]
    with path.open("ab") as file:
        file.write(b'me": 2}\n')
    events, _ = read_events(path, offset)
    assert [e["event"] for e in events] == ["b"]


def test_a_line_cut_in_the_middle_of_a_journal_is_an_error(sweep):
    path = sweep.journal("w")
    path.write_text('{"event": "a", "time": 1}\n{"event": "b", "ti\n{"event": "c", "time": 3}\n')
    with pytest.raises(ValueError, match=r"delimiter|Unterminated|Invalid"):
        read_events(path)


def test_a_refused_append_leaves_the_journal_as_it_was(sweep, monkeypatch):
    path = sweep.journal("w")
    journal = Journal(path)
    journal.append({"event": "a", "time": 1})
    before = path.read_bytes()
    real = os.write
    monkeypatch.setattr("sweep.store.journal.os.write", lambda fd, data: real(fd, data[: len(data) // 2]))
    with pytest.raises(OSError, match="short write"):
        journal.append({"event": "b", "time": 2})
    monkeypatch.undo()
    assert path.read_bytes() == before
    journal.append({"event": "b", "time": 2})
    assert [e["event"] for e in read_events(path)[0]] == ["a", "b"]


def test_a_reader_reads_each_line_once_and_in_order_of_time(sweep):
    one, two = Journal(sweep.journal("one")), Journal(sweep.journal("two"))
    reader = JournalReader(sweep)
    two.append({"event": "second", "time": 2})
    one.append({"event": "third", "time": 3})
    one.append({"event": "first", "time": 1})
    assert [e["event"] for e in reader.new_events()] == ["first", "second", "third"]
    assert reader.new_events() == []
    two.append({"event": "fourth", "time": 4})
    assert [e["event"] for e in reader.new_events()] == ["fourth"]


def test_find_sweep_refuses_what_is_no_sweep(tmp_path, monkeypatch):
    with pytest.raises(SweepError, match="not a sweep directory"):
        find_sweep(tmp_path)
    with pytest.raises(SweepError, match="no such directory"):
        find_sweep(tmp_path / "none")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SweepError, match="no sweep under"):
        find_sweep(None)


def test_find_sweep_takes_the_newest(tmp_path, monkeypatch):
    for number, name in enumerate(["sweeps/old", "sweeps/new"]):
        (tmp_path / name).mkdir(parents=True)
        provenance = tmp_path / name / "provenance.json"
        provenance.write_text("{}")
        os.utime(provenance, (1000 + number, 1000 + number))
    monkeypatch.chdir(tmp_path)
    assert find_sweep(None).path == tmp_path / "sweeps" / "new"


def test_a_claim_that_was_made_before_an_error_is_ours(sweep):
    holder = {"pilot": "p0001", "job_id": "7", "time": 5.0}
    assert try_claim(sweep, "r", 1, holder)
    assert try_claim(sweep, "r", 1, holder), "asked again after its answer was lost"
    assert not try_claim(sweep, "r", 1, {**holder, "pilot": "p0002"})
