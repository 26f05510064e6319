"""Weights & Biases. Offline unless WANDB_MODE sets otherwise: files in the sweep directory, for `wandb sync`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import wandb

from sweep.trackers.tracker import TrackedRun, TrackerError

QUIET: dict[str, Any] = {
    "silent": True,
    "console": "off",
    "disable_git": True,
    "disable_code": True,
    "save_code": False,
    "disable_job_creation": True,
    "x_disable_stats": True,
    "x_disable_meta": True,
    "x_disable_machine_info": True,
    "x_save_requirements": False,
}
"""This process only forwards results: its own machine, code, output and packages are unrelated to them."""

INIT_TIMEOUT_S = 30.0


class WandbTracker:
    """Writes runs with the wandb client. Settings in the user's environment (WANDB_MODE, WANDB_DIR, …) apply."""

    def __init__(self, project: str, sweep_dir: Path) -> None:
        os.environ.pop("WANDB_SERVICE", None)  # another process's: it outlives this one, with runs half written
        self._project = project
        self._mode = os.environ.get("WANDB_MODE", "offline")
        self._root = Path(os.environ.get("WANDB_DIR", sweep_dir)).absolute()
        self._left: dict[str, list[Path]] = {}
        """folders of offline runs by key: if a run is written again, its old folder would be uploaded too"""
        for folder in (self._root / "wandb").glob("offline-run-*-*"):
            self._left.setdefault(folder.name.rpartition("-")[2], []).append(folder)

    @property
    def destination(self) -> str:
        """The server and project when online, the folder and project when offline."""
        if self._mode == "online":
            server = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")
            return f"wandb {server} {os.environ.get('WANDB_ENTITY', '')}/{self._project}"
        return f"wandb {self._mode} {self._root} {self._project}"

    @property
    def hint(self) -> str:
        """How to view it."""
        if self._mode == "online":
            return f"project {self._project}"
        return f"`wandb sync {self._root}/wandb/offline-run-*` uploads it"

    def write(self, run: TrackedRun, picture: Path | None = None) -> None:
        """Write one run. Raises TrackerError if the server cannot be reached or refuses."""
        for folder in self._left.pop(run.key, ()):
            shutil.rmtree(folder, ignore_errors=True)
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            self._write(run, picture)
        except Exception as error:  # its client raises errors of many kinds, some of them bare Exceptions
            raise TrackerError(f"wandb: {error}") from error

    def _write(self, run: TrackedRun, picture: Path | None) -> None:
        # Those that the installed client has: names that start with x_ come and go
        quiet = {name: value for name, value in QUIET.items() if name in wandb.Settings.model_fields}
        timeout_s = float(os.environ.get("WANDB_INIT_TIMEOUT", INIT_TIMEOUT_S))
        begun = wandb.init(
            project=self._project,
            group=run.group,
            id=run.key,
            name=run.name,
            job_type="benchmark",
            config=dict(run.config),
            dir=str(self._root),
            mode=self._mode,  # type: ignore[arg-type]
            resume="allow" if self._mode == "online" else None,
            reinit="create_new",
            settings=wandb.Settings(init_timeout=timeout_s, **quiet),
        )
        if self._mode == "offline":
            self._left.setdefault(run.key, []).append(Path(begun.dir).parent)
        for step, row in enumerate(run.history):
            begun.log(dict(row), step=step)
        if picture is not None:
            begun.log({"heatmap": wandb.Image(str(picture))}, step=max(0, len(run.history) - 1))
        begun.summary.update(dict(run.summary))
        begun.finish(exit_code=1 if run.failed else 0)
