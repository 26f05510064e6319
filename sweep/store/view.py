"""A sweep as someone reads it who may not write to its directory: derived files are made elsewhere."""

from __future__ import annotations

import tempfile
from pathlib import Path

from sweep.store.directory import SweepDir
from sweep.store.sharing import is_own

_VIEWS: dict[Path, tuple[tempfile.TemporaryDirectory[str], SweepDir]] = {}
"""sweeps of others that this process reads; the temporary directories go at its end"""


def view_of(directory: SweepDir) -> SweepDir:
    """The sweep itself where this user may write derived files; else links to its files, and space for derived ones."""
    if is_own(directory.path):
        return directory
    path = directory.path.resolve()
    if path not in _VIEWS:
        folder = tempfile.TemporaryDirectory(prefix="sweep-view.")
        view = Path(folder.name) / path.name
        view.mkdir()
        for entry in path.iterdir():
            (view / entry.name).symlink_to(entry)
        _VIEWS[path] = folder, SweepDir(view)
    return _VIEWS[path][1]


def is_view(directory: SweepDir) -> bool:
    """Whether what is written there is gone with this process."""
    return any(directory == view for _, view in _VIEWS.values())
