"""Trackio: a local SQLite file, or a server if TRACKIO_SPACE_ID or TRACKIO_SERVER_URL is set."""

from __future__ import annotations

import contextlib
import io
import os
import sqlite3
from pathlib import Path

import trackio
from trackio.api import Run as StoredRun
from trackio.sqlite_storage import SQLiteStorage
from trackio.utils import TRACKIO_DIR

from sweep.trackers.tracker import TrackedRun, TrackerError


class TrackioTracker:
    """Writes runs with the Trackio client. It has no summary: metrics follow the iterations as one more row."""

    def __init__(self, project: str, sweep_dir: Path) -> None:  # noqa: ARG002
        self._project = project
        self._remote = os.environ.get("TRACKIO_SPACE_ID") or os.environ.get("TRACKIO_SERVER_URL")

    @property
    def destination(self) -> str:
        """The server or folder, and the project."""
        return f"trackio {(self._remote or str(TRACKIO_DIR)).split('?')[0]} {self._project}"

    @property
    def hint(self) -> str:
        """How to view it."""
        if self._remote is not None:
            return f"project {self._project} of the server"
        return f"`trackio show --project {self._project}`"

    def write(self, run: TrackedRun, picture: Path | None = None) -> None:
        """Write one run. Raises TrackerError if it cannot be stored."""
        name = f"{run.name}-{run.key[:8]}"
        # Trackio prints several lines per run on stdout, which is for the command's own result.
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                self._clear(name)
                self._write(name, run, picture)
            except (OSError, ValueError, RuntimeError, sqlite3.Error) as error:
                raise TrackerError(f"trackio: {error}") from error

    def _write(self, name: str, run: TrackedRun, picture: Path | None) -> None:
        begun = trackio.init(
            project=self._project,
            name=name,
            group=run.group,
            config={**run.config, "key": run.key},
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        for step, row in enumerate(run.history):
            begun.log(dict(row), step=step)
        last = dict(run.summary)
        if picture is not None:
            last["heatmap"] = trackio.Image(str(picture))
        begun.log(last, step=len(run.history))
        trackio.finish()
        self._check(name, begun.id, rows=len(run.history) + 1)

    def _check(self, name: str, run_id: str, *, rows: int) -> None:
        """Trackio never raises: what it could not store or send shows only here."""
        if self._remote is not None and SQLiteStorage.has_pending_data(self._project):
            raise TrackerError(f"trackio could not send {name} to its server")
        if self._remote is None and SQLiteStorage.get_log_count(self._project, name, run_id=run_id) != rows:
            raise TrackerError(f"trackio did not store {name} completely in {TRACKIO_DIR}")

    def _clear(self, name: str) -> None:
        """Remove the remains of an interrupted write: Trackio would add a second run of the name."""
        stored = SQLiteStorage.get_latest_run_record_by_name(self._project, name)
        if stored is not None:
            StoredRun(self._project, name, run_id=stored["id"]).delete()
