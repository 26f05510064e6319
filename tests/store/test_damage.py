"""Damaged files of a sweep: what is read of them all the same, what is reported, and what a writer does next."""

import errno
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sweep.errors import SweepError
from sweep.files import write_whole
from sweep.launcher.launcher import Launcher, token_of
from sweep.launcher.lost_attempts import mark_late_attempts_lost
from sweep.launcher.watch import Watch
from sweep.state.events import PilotAlive, RerunRequested, SessionAlive, decode, encode
from sweep.store.directory import Claim, claims_of, try_claim
from sweep.store.journal import Journal, JournalReader, read_events
from sweep.store.sweep import open_sweep
from tests.support import driving
from tests.support.launchers import Scheduler
from tests.support.made_sweeps import made
from tests.support.refusals import mistakes_of

FIRST, NEXT, LAST = (SessionAlive(time=float(number)) for number in (1, 2, 3))


# --- writers


def test_after_a_short_write_that_cannot_be_undone_the_next_event_begins_a_line(sweep, monkeypatch, capsys):
    """A disk that is full, and a server that refuses to truncate: half a line stays."""
    path = sweep.journal("w")
    journal, write = Journal(path), os.write
    journal.append(FIRST)

    def refused(*_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as failing:
        failing.setattr("sweep.store.journal.os.write", lambda fd, data: write(fd, data[: len(data) // 2]))
        failing.setattr("sweep.store.journal.os.ftruncate", refused)
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                journal.append(NEXT)
    journal.append(NEXT)
    journal.append(LAST)
    assert read_events(path)[0] == [FIRST, NEXT, LAST]
    assert capsys.readouterr().err.count("is skipped") == 2, "the two halves"


def removed(path):
    path.unlink()


def replaced(path):
    path.with_name("restored").write_bytes(path.read_bytes()[:60])
    path.with_name("restored").rename(path)


def cut(path):
    os.truncate(path, len(encode(FIRST)) + 5)


@pytest.mark.parametrize("damage", [removed, replaced, cut])
@pytest.mark.parametrize("failing", [True, False])
def test_a_writer_whose_file_is_no_longer_there_whole_writes_it_again(sweep, monkeypatch, capsys, damage, failing):
    path = sweep.journal("w")
    journal, reader = Journal(path), JournalReader(sweep)
    journal.append(FIRST)
    assert reader.new_events() == [FIRST]
    journal.append(NEXT)
    damage(path)
    if failing:
        with monkeypatch.context() as full:
            full.setattr("sweep.store.journal.os.write", lambda *_: 0)
            with pytest.raises(OSError, match="No space left"):
                journal.append(LAST)
    reader.new_events()
    journal.append(LAST)
    assert read_events(path)[0] == [FIRST, NEXT, LAST]
    assert reader.new_events()[-1] == LAST
    assert f"{path} was removed or changed by somebody else: all of it is written again" in capsys.readouterr().err
    journal.append(LAST)
    assert capsys.readouterr().err == ""


def test_a_writer_whose_file_another_host_removed_writes_it_again(sweep, monkeypatch):
    """On NFS: the server has no such file any more, and every call on the descriptor is refused as stale."""
    path = sweep.journal("w")
    journal, fstat = Journal(path), os.fstat
    journal.append(FIRST)
    path.unlink()

    def stale(descriptor):
        if not (status := fstat(descriptor)).st_nlink:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return status

    monkeypatch.setattr("sweep.store.journal.os.fstat", stale)
    journal.append(NEXT)
    assert read_events(path)[0] == [FIRST, NEXT]


def test_a_writer_does_not_write_where_its_directory_is_away(sweep):
    """A file system that fails over, or a directory that was renamed: it comes back with the journal."""
    path, away = sweep.journal("w"), sweep.path.with_name("away")
    journal = Journal(path)
    journal.append(FIRST)
    sweep.path.rename(away)
    with pytest.raises(FileNotFoundError):
        journal.append(NEXT)
    away.rename(sweep.path)
    journal.append(NEXT)
    assert read_events(path)[0] == [FIRST, NEXT]
    assert sorted(each.name for each in path.parent.iterdir()) == ["w.jsonl"]


# --- readers


@pytest.mark.parametrize(
    ("damage", "read"),
    [
        (encode(NEXT)[:20] + encode(LAST) + b"\n", [LAST]),
        (encode(NEXT) + encode(LAST) + b"\n", [NEXT, LAST]),
        (b"\0" * 100 + encode(LAST) + b"\n", [LAST]),
        (encode(NEXT) + b"\xff{garbage" + encode(LAST) + b"}}\n", [NEXT, LAST]),
        (encode(NEXT) + b"\0\0\0" + encode(LAST), [NEXT, LAST]),
    ],
    ids=["half before a whole one", "no line end", "NUL before", "garbage around", "NUL between, no line end"],
)
def test_whole_events_in_a_damaged_line_are_read(sweep, damage, read):
    path = sweep.journal("w")
    path.write_bytes(encode(FIRST) + b"\n" + damage)
    events, offset = read_events(path)
    assert events == [FIRST, *read]
    with path.open("ab") as file:
        file.write(b"\n" + encode(FIRST) + b"\n")
    assert read_events(path, offset)[0] == [FIRST]


def test_a_last_line_with_nul_bytes_is_read_once_its_data_has_arrived(sweep, capsys):
    """NFS: the size arrives before the data; the end of the line may be there before its beginning."""
    path, line = sweep.journal("w"), encode(RerunRequested(time=2.0, run_id="r" * 200, after=1)) + b"\n"
    before = encode(FIRST) + b"\n"
    reader = JournalReader(sweep)
    for hole in (slice(0, len(line)), slice(0, 100), slice(50, 150)):
        shown = bytearray(line)
        shown[hole] = bytes(len(shown[hole]))
        path.write_bytes(before + shown)
        assert reader.new_events() in ([FIRST], [])
    path.write_bytes(before + line)
    assert reader.new_events() == [decode(line)]
    assert capsys.readouterr().err == ""


def test_an_incomplete_last_line_is_reported_once_its_writer_is_unresponsive(sweep, capsys):
    path = sweep.journal("w")
    path.write_bytes(encode(FIRST) + b"\n" + encode(NEXT)[:10])
    reader = JournalReader(sweep)
    assert reader.new_events() == [FIRST]
    assert capsys.readouterr().err == "", "it may be being written"
    os.utime(path, (1.0, 1.0))
    assert [*reader.new_events(), *reader.new_events()] == []
    place = len(encode(FIRST)) + 1
    assert capsys.readouterr().err.count(f"{path}: the last line, at byte {place}, is incomplete (10 bytes)") == 1


@pytest.mark.parametrize("left", [0, 5, 40])
def test_a_journal_that_was_cut_before_what_was_read_of_it_is_read_again(sweep, capsys, left):
    path, reader = sweep.journal("w"), JournalReader(sweep)
    whole = b"".join(encode(event) + b"\n" for event in (FIRST, NEXT))
    path.write_bytes(whole)
    assert reader.new_events() == [FIRST, NEXT]
    path.write_bytes(whole[:left] + encode(LAST) + b"\n")
    assert LAST in reader.new_events()
    assert f"{path}: was changed before byte {len(whole)}" in capsys.readouterr().err


# --- claims


DAMAGES = [b"", b"\0" * 40, b'{"pilot":"p0001","jo', b"\xff\xfe\xfd"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_claim_is_anothers_and_its_attempt_is_marked_lost_once_no_pilot_is_left(tmp_path, damage, capsys):
    existing = made(tmp_path / "s")
    directory, run_id = existing.directory, existing.runs[0].run_id
    directory.claim(run_id, 1).write_bytes(damage)
    (directory.claims / "a note of mine").write_text("x")
    assert not try_claim(directory, run_id, 1, Claim(pilot="p0002", job_id="7", time=5.0))
    launcher = Launcher(existing)
    mark_late_attempts_lost(launcher)
    launcher.close()
    (lost,) = driving.records_of(directory.path)
    assert (lost["run_id"], lost["attempt"], lost["outcome"]) == (run_id, 1, "lost")
    assert driving.state_of(directory.path).run(run_id).next_attempt() == 2
    assert f"{directory.claim(run_id, 1)}: the claim is damaged" in capsys.readouterr().err
    assert [name for name, _, claim in claims_of(directory)] == [run_id]


def test_directories_among_journals_and_claims_are_passed_over(sweep):
    """What a file system or a user left there (.snapshot, lost+found, a copy) has no events and holds no attempt."""
    (sweep.path / "journal" / "copy.jsonl").mkdir()
    (sweep.claims / "run.1").mkdir()
    Journal(sweep.journal("w")).append(FIRST)
    assert sweep.journals() == [sweep.journal("w")]
    assert list(JournalReader(sweep).new_events()) == [FIRST]
    assert list(claims_of(sweep)) == []


@pytest.mark.parametrize("submitted", [True, False])
def test_a_pilot_whose_first_lines_are_damaged_is_found_by_its_name(tmp_path, submitted):
    """Else a launcher would wait for it indefinitely."""
    existing = made(tmp_path / "s")
    Journal(existing.directory.journal("pilot-p0001")).append(PilotAlive(time=3.0, pilot="p0001"))
    launcher = Launcher(existing)
    launcher.executor = Scheduler(jobs={token_of(existing.sweep_id, "p0001"): "7"} if submitted else {})
    launcher.local = True
    for _ in range(3):
        watch = Watch(launcher)
        watch.check()
    pilot = launcher.sweep.sweep_state.pilots["p0001"]
    assert (pilot.open, pilot.job_id) == (False, "7" if submitted else None)
    launcher.close()


# --- what is written once


@pytest.mark.parametrize("name", ["plan.parquet", "provenance.json", "grid.yaml", "site.yaml"])
@pytest.mark.parametrize("damage", ["empty", "half", "NUL", "garbage in the middle"])
def test_a_damaged_input_is_one_clear_error(tmp_path, name, damage):
    path = made(tmp_path / "s").directory.path / name
    content = path.read_bytes()
    middle = content.find(b":", len(content) // 2)  # amid a line: what ends with a whole line may be a whole file
    damaged = {
        "empty": b"",
        "half": content[:middle],
        "NUL": content[:middle] + bytes(len(content) - middle),
        "garbage in the middle": content[: middle - 40] + b"\xff\x80{[\x01" * 16 + content[middle + 40 :],
    }
    path.write_bytes(damaged[damage])
    assert {mistake.file for mistake in mistakes_of(open_sweep, path.parent)} == {str(path)}


def test_every_flipped_byte_of_a_plan_is_an_error_or_no_damage(tmp_path):
    sweep = made(tmp_path / "s")
    path = sweep.directory.plan
    content = path.read_bytes()
    for at in range(0, len(content), max(1, len(content) // 40)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :])
        try:
            found = [run.run().run_id for run in open_sweep(sweep.directory.path).runs]
        except SweepError as error:
            found = [mistake.file for mistake in error.mistakes]
        assert found in ([run.run_id for run in sweep.runs], [str(path)]), at


def test_a_plan_whose_rows_were_sorted_anew_is_refused(tmp_path):
    directory = made(tmp_path / "s").directory
    table = pq.read_table(directory.plan)
    lost = table.slice(0, 1).set_column(table.column_names.index("run_id"), "run_id", pa.nulls(1, pa.string()))
    pq.write_table(pa.concat_tables([lost.cast(table.schema), table]), directory.plan)
    with pytest.raises(SweepError, match="its runs are not its first rows"):
        open_sweep(directory.path)


def test_a_text_that_cannot_be_encoded_leaves_no_file(tmp_path):
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / "a", "\ud800")
    assert not list(tmp_path.iterdir())
