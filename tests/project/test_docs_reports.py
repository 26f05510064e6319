"""The commands of docs/reports.md run as written."""

from __future__ import annotations

import re
import shlex

import numpy as np
import pytest

from sweep.outcomes import Outcome
from sweep.records.collect import write_results
from tests.support import driving
from tests.support.made_records import made_measurement, made_record, made_run
from tests.support.made_sweeps import GRID, made, pilot_wrote
from tests.support.paths import REPOSITORY

COPIES = [(model, nodes) for model in ("1B", "4B", "8B") for nodes in (1, 2, 4, 8)]
"""cells of the synthetic copies that the page compares"""
PAGE = (REPOSITORY / "docs" / "reports.md").read_text()
SHOWN = [line[2:] for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
COMMANDS = [command for command in SHOWN if not command.startswith("sweep certify")]
"""those that read; `sweep certify` measures: tests/cli/test_certify.py"""


def test_its_commands_are_shown():
    shown = {"report", "compare", "history", "archive", "unarchive", "best", "figures", "explain"}
    assert {command.split()[1] for command in COMMANDS} == shown


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page(command, tmp_path):
    for name in re.findall(r"\b\w+\.parquet", PAGE):
        write_results(tmp_path / name, [made_record(made_run(zero=zero)) for zero in (0, 1)])
    (tmp_path / "larger.yaml").write_text(GRID)
    sweep = made(tmp_path / "sweeps" / "first")
    pilot_wrote(sweep, "p0001", *((run.run_id, 1, Outcome.OK) for run in sweep.runs))
    with sweep.directory.site.open("a") as site:
        site.write("dollars_per_gpu_hour: 2.5\n")
    if "unarchive" in command:
        driving.run("archive", "sweeps/first", cwd=tmp_path)
    done = driving.run(*shlex.split(command)[1:], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def copies(folder):
    """12 cells of four layouts, twice, with noise; the second copy has another NCCL, and one cell slower by 5 %."""
    noise = np.random.default_rng(21)
    for name, nccl in (("old", "2.26"), ("new", "2.27")):
        records = []
        for model, nodes in COPIES:
            slower = 1.05 if (name, model, nodes) == ("new", "4B", 4) else 1
            for tp, zero in ((1, 0), (1, 1), (2, 0), (2, 1)):
                run = made_run(model=model, nodes=nodes, dp=2 * nodes // tp, tp=tp, zero=zero)
                step_s = 0.1 * nodes * slower * (1 + 0.02 * tp + 0.01 * zero) * noise.normal(1, 0.004)
                measured = [
                    made_measurement(*noise.normal(step_s, 0.003 * step_s, 10), versions={"nccl": nccl})
                ] * run.gpus
                records.append(made_record(run, node_names=[f"n{i}" for i in range(nodes)], measurements=measured))
        write_results(folder / f"{name}.parquet", records)


def test_the_comparison_that_the_page_shows_is_printed(tmp_path):
    copies(tmp_path)
    done = driving.run("compare", "old.parquet", "new.parquet", cwd=tmp_path)
    (shown,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert done.stdout == shown
