"""A sweep in one file: opened elsewhere by every reading command, continued by none, without its user's secrets. What
packing reads of a directory in which others could write, and what opening takes from strangers.
"""

import io
import json
import os
import re
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sweep.errors import SweepError
from sweep.files import read_table
from sweep.outcomes import Outcome
from sweep.store import archive
from sweep.store.archive import extract, pack
from sweep.store.directory import SweepDir
from sweep.store.snapshot import read_state
from tests.support import driving
from tests.support.made_sweeps import made, pilot_wrote

KEY = "not-for-others"
SECRETS = {"of the site": "site-4711-secret", "of the grid": "grid-4712-secret", "of the shell": "shell-4713-secret"}
PRINTED = "hf_" + "Zz09" * 8
PARAMS = {"params": {"step_s": 0.02, "fault": ["", "exception"]}, "micro_batch_size": 2}
ENV = {"env": {"WANDB_API_KEY": SECRETS["of the grid"]}}
GRID = driving.simulated({"env": {"HF_TOKEN": SECRETS["of the site"]}}, name="archived", **PARAMS, **ENV)
READING = ("status DIR", "best DIR", "report DIR --no-figures", "heatmap DIR", "best DIR --format csv")


@pytest.fixture
def sweep(tmp_path):
    sweep = made(tmp_path / "s")
    pilot_wrote(sweep, "p0001", (sweep.runs[0].run_id, 1, Outcome.HANG))
    sweep.directory.log(sweep.runs[0].run_id, 1).write_text("a log\n")
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "id.log").write_text(KEY)
    return sweep


def texts(archive):
    with pa.input_stream(str(archive), compression="zstd") as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


def packed(sweep, out):
    return pack(sweep.directory, read_state(sweep.directory), out, "all"), texts(out)


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


@pytest.fixture(scope="module")
def sweep_dir(tmp_path_factory):
    """A sweep of two runs, one of which failed, with a secret in its logs, and a megabyte that only resembles one."""
    folder = tmp_path_factory.mktemp("original")
    driving.launch(folder, GRID, cwd=folder)
    records = driving.records_of(folder / "s")
    assert {record["outcome"] for record in records} == {"ok", "python_exception"}
    for record in records:
        with SweepDir(folder / "s").log(record["run_id"], record["attempt"]).open("a") as log:
            log.write(f"login with {PRINTED}; HF_HOME=/data; {SECRETS['of the shell']}\n" + "token" * 200_000)
    return folder / "s"


@pytest.fixture
def ours(sweep_dir, tmp_path):
    done = driving.succeeds("archive", sweep_dir, "--json", cwd=tmp_path, env={"MY_TOKEN": SECRETS["of the shell"]})
    assert (tmp_path / "s.tar.zst").stat().st_mode & 0o077 == 0
    return tmp_path / "s.tar.zst", json.loads(done.stdout)


def test_no_secret_is_in_it(ours):
    path, counts = ours
    found = texts(path)
    assert counts["files"] == len(found)
    assert counts["redacted"] >= 4
    everything = b"".join(found.values())
    for where, secret in {**SECRETS, "printed": PRINTED}.items():
        assert secret.encode() not in everything, where
    assert b"<redacted>" in everything
    assert not any("rendezvous" in name or "/claims/" in name for name in found)


def test_logs_are_those_of_failures_unless_asked(sweep_dir, tmp_path, ours):
    failed = [record for record in driving.records_of(sweep_dir) if record["outcome"] != "ok"]
    logs = [name for name in texts(ours[0]) if name.startswith("s/logs/")]
    assert len(logs) == len(failed) == ours[1]["logs"] > 0
    for choice, count in (("all", len(driving.records_of(sweep_dir))), ("none", 0)):
        done = driving.run("archive", sweep_dir, "--out", tmp_path / choice, "--logs", choice, cwd=tmp_path)
        assert re.search(rf"^{tmp_path / choice}: \d+ files, {count} of them logs, [1-9][\d.]* kB\n", done.stdout)
        assert len([name for name in texts(tmp_path / choice) if name.startswith("s/logs/")]) == count


def test_every_reading_command_works_on_the_copy(sweep_dir, ours, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    driving.succeeds("archive", ours[0], "--open", cwd=elsewhere)
    for command in READING:
        for place in ("s", ours[0]):
            read = driving.run(*command.replace("DIR", str(place)).split(), cwd=elsewhere)
            assert read.returncode == 0, (command, read.stderr)
    assert sorted(path.name for path in elsewhere.iterdir()) == ["heatmap.png", "report.html", "s"]
    (original,), (copy,) = (
        json.loads(driving.run("best", where, "--json").stdout) for where in (sweep_dir, elsewhere / "s")
    )
    assert copy == original | {"env": {"WANDB_API_KEY": "<redacted>"}}
    (failed,) = {record["run_id"] for record in driving.records_of(sweep_dir) if record["outcome"] != "ok"}
    for place in (elsewhere / "s", ours[0]):
        explained = driving.succeeds("explain", place, failed)
        assert "python_exception" in explained.stdout
        logged = driving.run("logs", place, failed)
        assert "simulated" in logged.stdout, logged.stderr


def test_no_command_continues_the_copy(ours, tmp_path, command):
    driving.succeeds("archive", ours[0], "--open", "--out", tmp_path / "copy")
    error = command.refused("resume", tmp_path / "copy", within=tmp_path / "copy")
    assert "extracted from an archive" in error, "the others are in tests/cli/test_copies.py"


def test_an_existing_directory_and_a_foreign_file_are_refused(ours, tmp_path):
    (tmp_path / "s").mkdir()
    assert "exists already" in driving.run("archive", ours[0], "--open", cwd=tmp_path).stderr
    (tmp_path / "x.tar.zst").write_bytes(b"no archive at all")
    assert "no archive of a sweep" in driving.run("archive", tmp_path / "x.tar.zst", "--open", cwd=tmp_path).stderr
    whole = ours[0].read_bytes()
    (tmp_path / "cut.tar.zst").write_bytes(whole[: len(whole) // 2])
    done = driving.run("archive", tmp_path / "cut.tar.zst", "--open", "--out", tmp_path / "cut")
    assert done.returncode == 2
    assert not (tmp_path / "cut").exists()
    assert not list(tmp_path.glob(".*"))
