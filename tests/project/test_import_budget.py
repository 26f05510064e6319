"""What `sweep --help` and looking at a plan may load."""

import re
import subprocess
import sys

import pytest

from tests.support.paths import REPOSITORY

HEAVY = {"torch", "pandas", "numpy", "pyarrow", "matplotlib", "submitit", "rich", "jinja2", "pydantic"}


def loaded_by(code: str) -> set[str]:
    """Top-level names of all modules that a fresh interpreter has loaded after the code."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {name.split(".")[0] for name in re.findall(r"import time: +\d+ \| +\d+ \| +(\S+)", done.stderr)}


COMMAND = """
import sys
from sweep.cli.main import main
sys.argv = ["sweep", *{}]
try:
    main()
except SystemExit as end:
    assert not end.code
"""


@pytest.mark.parametrize(("words", "forbidden"), [
    (["--help"], HEAVY),
    (["plan", str(REPOSITORY / "examples/laptop.yaml"), "--json"], {"torch", "pandas", "matplotlib", "submitit"}),
])  # fmt: skip
def test_a_command_that_only_shows_loads_nothing_heavy(words: list[str], forbidden: set[str]) -> None:
    loaded = loaded_by(COMMAND.format(words))
    assert "click" in loaded
    assert not loaded & forbidden


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("sweep.contract", HEAVY | {"click", "msgspec", "psutil", "yaml"}),
        ("sweep.plugins", HEAVY | {"click", "psutil", "yaml"}),
        ("sweep.executors.executor", HEAVY | {"psutil"}),
        ("sweep.executors.entry", HEAVY | {"psutil"}),
        ("sweep.pilot.leader.leader", HEAVY - {"numpy", "pyarrow"}),
        ("sweep.pilot.agent.agent", HEAVY),
        ("sweep.pilot.agent.__main__", HEAVY),
        ("sweep.pilot.agent.fork_server", HEAVY | {"msgspec"}),
        ("bench_workloads.transformer", HEAVY),
        ("bench_workloads.simulated.main", HEAVY),
    ],
)
def test_light_modules_stay_light(module: str, forbidden: set[str]) -> None:
    loaded = loaded_by(f"import {module}")
    assert module.split(".")[0] in loaded
    assert not loaded & forbidden
