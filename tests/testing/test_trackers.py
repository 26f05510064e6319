"""Our own trackers conform, with the real clients."""

import sqlite3

import pytest

from tests.support.conforming_trackers import check_tracker
from tests.support.slurm.services import wait_until


def test_wandb_conforms(tmp_path, monkeypatch, capfd):
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

    check_tracker(WandbTracker, tmp_path, capfd, count=count, unreachable=unreachable)


def test_mlflow_conforms(tmp_path, monkeypatch, capfd):
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

    check_tracker(MlflowTracker, tmp_path, capfd, count=count, unreachable=unreachable)
