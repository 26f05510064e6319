"""What `sweep best` makes of a record of one of the layouts, as the trainer is given it."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sweep.contract import Run
from sweep.records.collect import write_results
from sweep.records.record import configuration
from tests.support import driving
from tests.support.made_records import made_record
from tests.support.trainers.layouts import LAYOUTS, run_of

STEPS = 8


@dataclass(frozen=True)
class Exported:
    """A cell in the trainer's format, read back from where the command wrote it."""

    run: Run
    folder: Path
    files: Mapping[str, str]
    program: list[str]
    """what follows torchrun's options"""
    env: Mapping[str, str]
    """the variables before the command"""


def exported(trainer: str, number: int, directory: Path, **params: str) -> Exported:
    """One of the trainer's six layouts. ``params``: such as ``root``, a checkout of the trainer."""
    run = run_of(trainer, **LAYOUTS[trainer][number])
    run = replace(run, params={**run.params, **params})
    directory.mkdir(exist_ok=True)
    write_results(directory / "r.parquet", [replace(made_record(), **vars(configuration(run, None)))])
    words = ("--format", trainer, "--iterations", STEPS, "--out", directory / "out")
    driving.succeeds("best", directory / "r.parquet", *words)
    folder = directory / "out" / "small-1-nodes"
    *_, command = (folder / "command.sh").read_text().splitlines()
    words = shlex.split(command)
    ranks = words.index(f"--nproc-per-node={run.gpus_per_node}")
    files = {path.name: path.read_text() for path in folder.iterdir() if path.name != "command.sh"}
    env = dict(word.split("=", 1) for word in words[:ranks] if re.match(r"[A-Z_]+=", word))
    return Exported(run, folder, files, words[ranks + 1 :], env)
