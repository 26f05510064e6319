"""Files that come with the code and are not Python: templates and examples."""

from __future__ import annotations

import importlib.resources
from pathlib import Path


def shipped_folder(name: str) -> Path:
    """The folder of that name: inside the package where it is installed from a wheel, next to it in a checkout."""
    package = Path(str(importlib.resources.files("sweep")))
    inside = package / f"_{name}"
    return inside if inside.is_dir() else package.parent / name
