"""The commands of docs/reports.md run as written."""

from __future__ import annotations

import re
import shlex

import pytest

from sweep.outcomes import Outcome
from sweep.records.collect import write_results
from tests.support import driving
from tests.support.made_records import made_record, made_run
from tests.support.made_sweeps import made, pilot_wrote
from tests.support.paths import REPOSITORY

PAGE = (REPOSITORY / "docs" / "reports.md").read_text()
COMMANDS = [line[2:] for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


def test_its_commands_are_shown():
    shown = {"report", "compare", "history", "archive", "unarchive", "best", "figures", "explain"}
    assert {command.split()[1] for command in COMMANDS} == shown


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page(command, tmp_path):
    for name in re.findall(r"\b\w+\.parquet", PAGE):
        write_results(tmp_path / name, [made_record(made_run(zero=zero)) for zero in (0, 1)])
    sweep = made(tmp_path / "sweeps" / "first")
    pilot_wrote(sweep, "p0001", *((run.run_id, 1, Outcome.OK) for run in sweep.runs))
    with sweep.directory.site.open("a") as site:
        site.write("dollars_per_gpu_hour: 2.5\n")
    if "unarchive" in command:
        driving.run("archive", "sweeps/first", cwd=tmp_path)
    done = driving.run(*shlex.split(command)[1:], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
