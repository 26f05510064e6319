"""Archives: what packing reads of a directory in which others could write, and what opening takes from strangers."""

import io
import os
import tarfile
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sweep import archive
from sweep.archive import extract, pack
from sweep.errors import SweepError
from sweep.files import read_table
from sweep.outcomes import Outcome
from sweep.store.snapshot import read_state
from tests.support.made_sweeps import made, pilot_wrote

KEY = "not-for-others"


@pytest.fixture
def sweep(tmp_path):
    sweep = made(tmp_path / "s")
    pilot_wrote(sweep, "p0001", (sweep.runs[0].run_id, 1, Outcome.HANG))
    sweep.directory.log(sweep.runs[0].run_id, 1).write_text("a log\n")
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "id.log").write_text(KEY)
    return sweep


def packed(sweep, out):
    about = pack(sweep.directory, read_state(sweep.directory), out, "all")
    with pa.input_stream(str(out), compression="zstd") as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        return about, {member.name: tar.extractfile(member).read() for member in tar}


@pytest.mark.parametrize("kind", ["link", "folder above", "pilot", "pipe", "device"])
def test_only_regular_files_are_packed_and_no_link_is_followed(sweep, tmp_path, kind):
    """Nothing waits for the other end of a pipe."""
    log, logs = sweep.directory.log(sweep.runs[0].run_id, 1), sweep.directory.path / "logs"
    if kind == "folder above":
        (tmp_path / "keys" / log.name).write_text(KEY)
        log.unlink()
        logs.rmdir()
        logs.symlink_to(tmp_path / "keys")
    elif kind == "pilot":
        (sweep.directory.path / "pilots" / "p0002").symlink_to(tmp_path / "keys")
    else:
        log.unlink()
        {"link": lambda: log.symlink_to(tmp_path / "keys" / "id.log"), "pipe": lambda: os.mkfifo(log),
         "device": lambda: log.symlink_to("/dev/zero")}[kind]()  # fmt: skip
    about, files = packed(sweep, tmp_path / "a.tar.zst")
    assert KEY.encode() not in b"".join(files.values())
    assert len(about.left_out) == 1


@pytest.mark.parametrize("name", ["site.yaml", "plan.parquet", "journal/pilot-p0001.jsonl"])
def test_a_link_in_the_place_of_what_a_sweep_needs_is_an_error(sweep, tmp_path, name):
    path = sweep.directory.path / name
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SweepError, match="cannot be archived"):
        packed(sweep, tmp_path / "a.tar.zst")
    assert not (tmp_path / "a.tar.zst").exists()


def archive_of(path, *members, first=("s/archive.json", "s/provenance.json")):
    """Each member is a name, or a TarInfo with its content."""
    with pa.CompressedOutputStream(str(path), "zstd") as stream, tarfile.open(fileobj=stream, mode="w|") as tar:
        for member in (*first, *members):
            info, data = (tarfile.TarInfo(member), b"") if isinstance(member, str) else member
            tar.addfile(info, io.BytesIO(data))
    return path


def special(kind, name="s/logs/x.log", target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


STRANGE = (
    *("s/.ssh/authorized_keys", "s/./site.yaml", "s//site.yaml", "s/logs/.x.log", "s/logs/../x.log", ".s/site.yaml"),
    *("s/a/b/c/d", "s/snapshot.msgpack", "s/claims/x.1", "s/leases/launcher-0001", "s/logs/a\nb.log"),
    *("s/logs/\u202ea.log", "s/../../outside", "/tmp/outside", "other/outside", "s/provenance.json"),
    "s/provenance.json/below",
    *(special(kind, target="/etc/passwd") for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE)),
    *(special(kind) for kind in (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE)),
)


@pytest.mark.parametrize(
    "member", STRANGE, ids=lambda member: repr(member if isinstance(member, str) else member[0].type)
)
def test_a_member_that_no_archive_of_ours_has_is_refused_and_nothing_remains(tmp_path, member):
    with pytest.raises(SweepError, match="no archive of a sweep"):
        extract(archive_of(tmp_path / "a.tar.zst", member), tmp_path / "in" / "s")
    assert [path.name for path in tmp_path.rglob("*")] == ["a.tar.zst"]


@pytest.mark.parametrize("members", [
    (".git/archive.json", ".git/provenance.json"), ("../archive.json", "../provenance.json"), ("s/archive.json",),
])  # fmt: skip
def test_a_folder_with_a_dot_name_or_without_a_provenance_is_not_made_here(tmp_path, monkeypatch, members):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SweepError, match="no archive of a sweep"):
        extract(archive_of(Path("a.tar.zst"), first=members), None)
    assert [path.name for path in tmp_path.rglob("*")] == ["a.tar.zst"]


@pytest.mark.parametrize("limit", ["FILE_BYTES", "TOTAL_BYTES", "FILES"])
def test_what_is_larger_than_the_limits_is_refused(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(archive, limit, 2)
    info = tarfile.TarInfo("s/logs/x.log")
    info.size = 3
    with pytest.raises(SweepError, match="larger than an archive of a sweep may be"):
        extract(archive_of(tmp_path / "a.tar.zst", (info, b"abc")), tmp_path / "s")
    assert [path.name for path in tmp_path.rglob("*")] == ["a.tar.zst"]


def test_a_header_of_many_megabytes_is_not_read(tmp_path):
    """An extended header is read into memory as a whole."""
    info = tarfile.TarInfo("s/logs/x.log")
    info.pax_headers = {"comment": "x" * (8 << 20)}
    with pytest.raises(SweepError, match="larger than an archive of a sweep may be"):
        extract(archive_of(tmp_path / "a.tar.zst", (info, b"")), tmp_path / "s")


def test_a_table_of_more_rows_than_a_plan_has_is_refused(tmp_path):
    pq.write_table(pa.table({"run_id": pa.nulls(20_000_000, pa.string())}), tmp_path / "t.parquet")
    with pytest.raises(SweepError, match="too large a table"):
        read_table(tmp_path / "t.parquet")


def test_an_archive_of_ours_opens(sweep, tmp_path):
    packed(sweep, tmp_path / "a.tar.zst")
    with tempfile.TemporaryDirectory() as place:
        copy = extract(tmp_path / "a.tar.zst", Path(place) / "copy")
        assert copy.log(sweep.runs[0].run_id, 1).read_text() == "a log\n"
