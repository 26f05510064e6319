"""A sweep in one file: opened elsewhere by every reading command, continued by none, without its user's secrets."""

import json
import re
import tarfile

import pyarrow as pa
import pytest

from sweep.store.directory import SweepDir
from tests.support import driving

SECRETS = {"of the site": "site-4711-secret", "of the grid": "grid-4712-secret", "of the shell": "shell-4713-secret"}
PRINTED = "hf_" + "Zz09" * 8
PARAMS = {"params": {"step_s": 0.02, "fault": ["", "exception"]}, "micro_batch_size": 2}
ENV = {"env": {"WANDB_API_KEY": SECRETS["of the grid"]}}
GRID = driving.simulated({"env": {"HF_TOKEN": SECRETS["of the site"]}}, name="archived", **PARAMS, **ENV)
READING = ("status DIR", "best DIR", "report DIR --no-figures", "heatmap DIR", "best DIR --format csv")
CONTINUING = (
    "resume DIR",
    "rerun DIR --failed",
    "nodes DIR exclude n7",
    "launch DIR/grid.yaml -o iterations=9 --dir DIR --add --yes",
)


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
def archive(sweep_dir, tmp_path):
    done = driving.succeeds("archive", sweep_dir, "--json", cwd=tmp_path, env={"MY_TOKEN": SECRETS["of the shell"]})
    assert (tmp_path / "s.tar.zst").stat().st_mode & 0o077 == 0
    return tmp_path / "s.tar.zst", json.loads(done.stdout)


def texts(archive):
    with pa.input_stream(str(archive), compression="zstd") as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


def test_no_secret_is_in_it(archive):
    path, counts = archive
    found = texts(path)
    assert counts["files"] == len(found)
    assert counts["redacted"] >= 4
    everything = b"".join(found.values())
    for where, secret in {**SECRETS, "printed": PRINTED}.items():
        assert secret.encode() not in everything, where
    assert b"<redacted>" in everything
    assert not any("rendezvous" in name or "/claims/" in name for name in found)


def test_logs_are_those_of_failures_unless_asked(sweep_dir, tmp_path, archive):
    failed = [record for record in driving.records_of(sweep_dir) if record["outcome"] != "ok"]
    logs = [name for name in texts(archive[0]) if name.startswith("s/logs/")]
    assert len(logs) == len(failed) == archive[1]["logs"] > 0
    for choice, count in (("all", len(driving.records_of(sweep_dir))), ("none", 0)):
        done = driving.run("archive", sweep_dir, "--out", tmp_path / choice, "--logs", choice, cwd=tmp_path)
        assert re.search(rf"^{tmp_path / choice}: \d+ files, {count} of them logs, [1-9][\d.]* kB\n", done.stdout)
        assert len([name for name in texts(tmp_path / choice) if name.startswith("s/logs/")]) == count


def test_every_reading_command_works_on_the_copy(sweep_dir, archive, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    driving.succeeds("archive", archive[0], "--open", cwd=elsewhere)
    for command in READING:
        for place in ("s", archive[0]):
            read = driving.run(*command.replace("DIR", str(place)).split(), cwd=elsewhere)
            assert read.returncode == 0, (command, read.stderr)
    assert sorted(path.name for path in elsewhere.iterdir()) == ["heatmap.png", "report.html", "s"]
    (original,), (copy,) = (
        json.loads(driving.run("best", where, "--json").stdout) for where in (sweep_dir, elsewhere / "s")
    )
    assert copy == original | {"env": {"WANDB_API_KEY": "<redacted>"}}
    (failed,) = {record["run_id"] for record in driving.records_of(sweep_dir) if record["outcome"] != "ok"}
    for place in (elsewhere / "s", archive[0]):
        explained = driving.succeeds("explain", place, failed)
        assert "python_exception" in explained.stdout
        logged = driving.run("logs", place, failed)
        assert "simulated" in logged.stdout, logged.stderr


@pytest.mark.parametrize("command", CONTINUING)
def test_no_command_continues_the_copy(archive, tmp_path, command):
    driving.run("archive", archive[0], "--open", "--out", tmp_path / "copy")
    before = sorted((tmp_path / "copy").rglob("*"))
    done = driving.run(*command.replace("DIR", str(tmp_path / "copy")).split())
    assert done.returncode == 2, done.stdout
    assert "extracted from an archive" in done.stderr
    assert sorted((tmp_path / "copy").rglob("*")) == before


def test_an_existing_directory_and_a_foreign_file_are_refused(archive, tmp_path):
    (tmp_path / "s").mkdir()
    assert "exists already" in driving.run("archive", archive[0], "--open", cwd=tmp_path).stderr
    (tmp_path / "x.tar.zst").write_bytes(b"no archive at all")
    assert "no archive of a sweep" in driving.run("archive", tmp_path / "x.tar.zst", "--open", cwd=tmp_path).stderr
    whole = archive[0].read_bytes()
    (tmp_path / "cut.tar.zst").write_bytes(whole[: len(whole) // 2])
    done = driving.run("archive", tmp_path / "cut.tar.zst", "--open", "--out", tmp_path / "cut")
    assert done.returncode == 2
    assert not (tmp_path / "cut").exists()
    assert not list(tmp_path.glob(".*"))
