"""Real trainers in separate environments: their paths, and sweeps of the examples with them."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support import driving
from tests.support.paths import REPOSITORY

SCRIPTS = Path(__file__).parent
"""scripts that trainers run: no part of sweep, and no tests"""
STUBS = SCRIPTS / "without_cuda"


def python_of(variable):
    """The interpreter or checkout that a variable of the environment names; the test is skipped without."""
    python = os.environ.get(variable)
    if not python:
        pytest.skip(f"{variable} is not set")
    return python


def answered(*command, env=None):
    """The JSON on the last line that a command prints."""
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=800, env={**os.environ, **(env or {})},
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


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


PACED = SCRIPTS / "paced.py"
SHAPE = {"num_layers": 2, "hidden_size": 64, "num_heads": 4, "intermediate_size": 128, "vocab_size": 512}


def of_command(params, **further):
    """A grid of a foreign trainer that is a script of this folder."""
    return {
        "workload": "command", "models": {"toy": SHAPE}, "nodes": 1, "sequence_length": 64, "global_batch": 2048,
        "dtype": "fp32", "micro_batch_size": 8, "params": params, "remeasure": 0,
        "site": {"gpu": "cpu", "gpus_per_node": 2, "poll_interval_s": 1}, **further,
    }  # fmt: skip


def paced(paces, prints="last", **further):
    """A sweep of one with these step times, in their order."""
    params = {
        "command": f"python {PACED} {{{{ a }}}} {{{{ steps }}}} {prints}",
        "metrics": "iteration: step (\\d+)\nstep_time_s: time {number}\n",
        "a": [str(pace) for pace in paces],
    }
    return of_command(params, **{"name": "paced", "nodes": 2, "stop_slow": 1.2, **further})
