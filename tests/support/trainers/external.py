"""Real trainers in separate environments: their paths, and sweeps of the examples with them."""

import json
import os
from pathlib import Path

import pytest

from tests.support import driving
from tests.support.paths import REPOSITORY

SCRIPTS = Path(__file__).parent
"""scripts that trainers run: no part of sweep, and no tests"""


def python_of(variable):
    """The interpreter that a variable of the environment names; the test is skipped without."""
    python = os.environ.get(variable)
    if not python:
        pytest.skip(f"{variable} is not set")
    return python


def measured(directory, example, variable, *overrides, cluster=None):
    """The records of an example's sweep, all of them ok, with nothing left behind; on this machine or a cluster.

    Without repeats at the end: each start of such a trainer takes from ten seconds to a minute of CPU.
    """
    given = (f"params.python={python_of(variable)}", "remeasure=0", *overrides)
    words = [word for one in given for word in ("-o", one)]
    launch = ("launch", REPOSITORY / "examples/trainers" / example, "--dir", directory, "--yes", "--json")
    executor = ("--executor", "slurm" if cluster else "local")
    env = cluster.env if cluster else None
    done = driving.succeeds(*launch, *executor, *words, cwd=REPOSITORY, env=env, timeout=1500)
    summary = json.loads(done.stdout)
    assert set(summary["counts"]) == {"ok"}, summary
    assert Path(summary["heatmap"]).read_bytes().startswith(b"\x89PNG")
    assert driving.wait_until_unmarked(directory, 10) == []
    if cluster:
        cluster.wait_idle()
        assert cluster.job_processes() == []
    return driving.assert_each_run_measured_once(directory)
