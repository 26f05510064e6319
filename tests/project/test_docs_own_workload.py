"""The tutorial in docs/own-workload.md, done as it is written; pip's part by hand."""

import configparser
import json
import os
import re
import subprocess
import sys

import pytest

from tests.support import driving
from tests.support.paths import REPOSITORY

PAGE = (REPOSITORY / "docs/own-workload.md").read_text()


def block(language, number=0):
    """A block of that language, the first by default."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[number]


@pytest.fixture
def installed(tmp_path):
    """The package of the page on PYTHONPATH, with the entry points that pip would write."""
    (tmp_path / "mybench.py").write_text(block("python"))
    project = configparser.ConfigParser()
    project.read_string(block("toml"))
    points = project['project.entry-points."sweep.workloads"']
    info = tmp_path / "mybench-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mybench\nVersion: 0.1\n")
    lines = "".join(f"{name} = {value.strip(chr(34))}\n" for name, value in points.items())
    (info / "entry_points.txt").write_text(f"[sweep.workloads]\n{lines}")
    (tmp_path / "grid.yaml").write_text(block("yaml"))
    return tmp_path


def test_the_tutorial_works_as_it_is_written(installed):
    path = os.pathsep.join(filter(None, [str(installed), os.environ.get("PYTHONPATH", "")]))
    words = ("launch", "grid.yaml", "--dir", "s", "--executor", "local", "--yes", "--json")
    done = driving.run(*words, cwd=installed, env={"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["counts"] == {"ok": 6}, "four layouts, and the best two once more"
    for record in driving.records_of(installed / "s"):
        assert len(record["step_times_s"]) == 5


def test_it_conforms_as_the_page_checks_it(installed):
    (installed / "test_mybench.py").write_text(block("python", 1))
    path = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(installed), "test_mybench.py"]
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, cwd=installed, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_it_is_as_short_as_it_states():
    lines = [line for line in block("python").splitlines() if line.strip() and not line.strip().startswith('"""')]
    assert len(lines) <= 20


MEETING = """
import time
from sweep.contract import Measurement, Phase, Workload


def main(run, progress):
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    times = []
    for number in range(run.warmup_iterations + run.iterations):
        progress.heartbeat(Phase.STEADY if number else Phase.FIRST_ITERATION, number)
        begin = time.perf_counter()
        total = torch.ones(1)
        dist.all_reduce(total)
        assert int(total) == dist.get_world_size() == run.place.world_size
        times.append(time.perf_counter() - begin)
    dist.destroy_process_group()
    progress.measured(Measurement(step_times_s=times[run.warmup_iterations :]))


WORKLOAD = Workload(
    name="mybench", main="mybench:main", axes=frozenset({"dp", "micro_batch_size", "grad_accum"}), params={"work": 100}
)
"""


def test_ranks_meet_by_the_variables_alone(installed):
    """As users' own code does it: nothing of ours is involved."""
    (installed / "mybench.py").write_text(MEETING)
    path = os.pathsep.join(filter(None, [str(installed), os.environ.get("PYTHONPATH", "")]))
    words = ("launch", "grid.yaml", "--dir", "s", "--executor", "local", "--yes", "--json", "-o", "params.work=1")
    done = driving.run(*words, cwd=installed, env={"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["counts"] == {"ok": 2}
