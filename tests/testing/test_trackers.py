"""`check_tracker`: our own trackers pass with the real clients, and each deviation of another is found."""

import json
import os
import sqlite3

import pytest

from sweep.testing import ConformanceError
from sweep.trackers.tracker import TrackerError
from tests.support.conforming_trackers import check_tracker
from tests.support.slurm.services import wait_until


class Folder:
    """A minimal tracker: a JSON file per run."""

    hint = "one file per run"

    def __init__(self, project, sweep_dir):
        self.folder = sweep_dir / project
        self.destination = f"folder {self.folder}"

    def write(self, run, picture=None):
        try:
            self.folder.mkdir(exist_ok=True)
            (self.folder / f"{run.key}.json").write_text(json.dumps(dict(run.config)))
        except OSError as error:
            raise TrackerError(str(error)) from error


def test_a_minimal_one_conforms(tmp_path):
    (tmp_path / "taken").write_text("")
    check_tracker(
        Folder,
        tmp_path,
        count=lambda run: len(list(tmp_path.rglob(f"{run.key}*"))),
        unreachable=lambda: Folder("taken", tmp_path),
    )


def test_wandb_conforms(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    from sweep.trackers.wandb import WandbTracker
    from tests.support.wandb_file import read

    monkeypatch.setenv("WANDB_MODE", "offline")
    (tmp_path / "file").write_text("")

    def unreachable():
        monkeypatch.setenv("WANDB_DIR", str(tmp_path / "file" / "under"))
        return WandbTracker("p", tmp_path)

    def count(run):
        files = [*tmp_path.glob(f"wandb/offline-run-*/run-{run.key}.wandb")]
        assert wait_until(lambda: all(read(path).get("id") == run.key for path in files), 20)  # its service writes it
        return len(files)

    check_tracker(WandbTracker, tmp_path, count=count, unreachable=unreachable)


def test_mlflow_conforms(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    from sweep.trackers.mlflow import KEY, MlflowTracker

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def unreachable():
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        return MlflowTracker("p", tmp_path)

    def count(run):
        query = (
            "select count(*) from tags join runs using (run_uuid) where key = ? and tags.value = ? "
            "and lifecycle_stage = 'active'"
        )
        with sqlite3.connect(tmp_path / "mlflow.db") as connection:
            return connection.execute(query, (KEY, run.key)).fetchone()[0]

    check_tracker(MlflowTracker, tmp_path, count=count, unreachable=unreachable)


class Prints(Folder):
    def write(self, run, picture=None):
        super().write(run)
        os.system("echo written")


class Twice(Folder):
    def write(self, run, picture=None):
        super().write(run)
        (self.folder / f"{run.key}-{len(list(self.folder.iterdir()))}").touch()


class NoHistoryNoRun(Folder):
    def write(self, run, picture=None):
        run.history[0]


class OneForAll(Folder):
    def __init__(self, project, sweep_dir):
        super().__init__("all", sweep_dir)


class EachItsOwn(Folder):
    number = iter(range(100))

    def __init__(self, project, sweep_dir):
        super().__init__(project, sweep_dir)
        self.destination = f"{project} {next(self.number)}"


class TwoLines(Folder):
    hint = "one\ntwo"


class Bare(Folder):
    def write(self, run, picture=None):
        self.folder.mkdir(exist_ok=True)


class Lost(Folder):
    def write(self, run, picture=None):
        pass


@pytest.mark.parametrize(
    ("tracker", "finding"),
    [
        (Prints, "a run: write: printed b'written"),
        (Twice, "a run that was written twice is stored"),
        (NoHistoryNoRun, "a failed run without iterations: write: raised IndexError"),
        (OneForAll, "destination: is the same for two projects"),
        (EachItsOwn, "destination: differs between two trackers of one project"),
        (TwoLines, "hint: 'one\\ntwo' is not one line"),
        (Bare, "write: raised FileExistsError: "),
        (Lost, "write: reported no error where its destination cannot be reached"),
    ],
)
def test_a_deviation_is_found(tracker, finding, tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(ConformanceError, match=f"the tracker {tracker.__name__} does not conform") as error:
        check_tracker(
            tracker,
            tmp_path,
            count=lambda run: len(list(tmp_path.rglob(f"{run.key}*"))),
            unreachable=lambda: tracker("taken", tmp_path),
        )
    assert finding in "\n".join(error.value.findings)
