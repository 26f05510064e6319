"""Programs that a test puts on PATH in place of a client of Slurm or another."""

from pathlib import Path


def made_client(path: Path, script: str) -> None:
    """A program of this shell script."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
