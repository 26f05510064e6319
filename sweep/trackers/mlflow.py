"""MLflow: an SQLite file in the sweep directory, or the server or store that MLFLOW_TRACKING_URI names."""

from __future__ import annotations

import functools
import json
import logging
import os
from itertools import starmap
from pathlib import Path
from typing import Any

from mlflow.entities import Metric, Param, RunTag
from mlflow.tracking import MlflowClient

from sweep.redaction import Redaction
from sweep.trackers.tracker import TrackedRun, TrackerError

KEY, GROUP = "sweep.key", "sweep.id"
"""tags of a run: which attempt it is, and of which sweep"""
AT_ONCE = 100
"""parameters, tags or metrics in one request; MLflow takes 100 of the first two"""
LONGEST = 5000
"""characters of a parameter or a tag: MLflow's limits are 6,000 and 8,000, in older versions 5,000 of a tag"""
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}
"""unless the user sets otherwise: `sweep track` tries again later"""


class MlflowTracker:
    """Writes runs with the MLflow client: parameters, tags for what is text, metrics by iteration."""

    def __init__(self, project: str, sweep_dir: Path) -> None:
        self._project = project
        self._local = sweep_dir.absolute()
        self._uri = os.environ.get("MLFLOW_TRACKING_URI") or None
        for name, value in PATIENCE.items():
            os.environ.setdefault(name, value)
        for name in ("mlflow", "alembic"):  # they log the creation of tables
            logging.getLogger(name).setLevel(logging.WARNING)

    @property
    def destination(self) -> str:
        """The server or file, and the project."""
        return f"mlflow {Redaction(()).clean(self._store)} {self._project}"

    @property
    def hint(self) -> str:
        """How to view it."""
        if self._uri is not None:
            return f"experiment {self._project} of {self._uri}"
        return f"`mlflow ui --backend-store-uri {self._store}` shows it"

    def write(self, run: TrackedRun, picture: Path | None = None) -> None:
        """Write one run. Raises TrackerError if the server cannot be reached or refuses."""
        try:
            client, experiment = self._opened
            for old in client.search_runs([experiment], filter_string=f"tags.`{KEY}` = '{run.key}'"):
                client.delete_run(old.info.run_id)
            _write(client, experiment, run, picture)
        except Exception as error:  # besides its own: those of SQLAlchemy and of stores of artifacts
            text = next(iter(str(error).splitlines()), type(error).__name__)
            raise TrackerError(f"mlflow: {Redaction(()).clean(text)}") from error

    @property
    def _store(self) -> str:
        return self._uri or f"sqlite:///{self._local / 'mlflow.db'}"

    @functools.cached_property
    def _opened(self) -> tuple[MlflowClient, str]:
        """The client, and the experiment's id."""
        if self._uri is None:
            self._local.mkdir(parents=True, exist_ok=True)
        client = MlflowClient(tracking_uri=self._store)
        known = client.get_experiment_by_name(self._project)
        place = None if self._uri else (self._local / "mlartifacts").as_uri()
        made = client.create_experiment(self._project, artifact_location=place) if known is None else None
        return client, made or known.experiment_id


def _write(client: MlflowClient, experiment: str, run: TrackedRun, picture: Path | None) -> None:
    times = (run.config.get(name) for name in ("started_at", "ended_at"))
    begun, ended = (None if seconds is None else int(1000 * seconds) for seconds in times)
    tags = {n: _text(v) for n, v in run.summary.items() if not _is_number(v)}
    begin = {KEY: run.key, GROUP: run.group}  # at once: by these the remains of an interrupted write are found
    run_id = client.create_run(experiment, start_time=begun, run_name=run.name, tags=begin).info.run_id
    last = max(0, len(run.history) - 1)
    metrics = [
        Metric(name, float(value), ended or 0, step)
        for step, row in [*enumerate(run.history), (last, run.summary)]
        for name, value in row.items()
        if _is_number(value)
    ]
    params = [Param(name, _text(value)) for name, value in run.config.items()]
    kinds: dict[str, list[Any]] = {"metrics": metrics, "params": params, "tags": list(starmap(RunTag, tags.items()))}
    for kind, values in kinds.items():
        for first in range(0, len(values), AT_ONCE):
            client.log_batch(run_id, **{kind: values[first : first + AT_ONCE]})
    if picture is not None:
        client.log_artifact(run_id, str(picture), "heatmap")
    client.set_terminated(run_id, "FAILED" if run.failed else "FINISHED", end_time=ended)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: object) -> str:
    """Texts as they are, all else as JSON; cut where MLflow would refuse it."""
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))[:LONGEST]
