"""A pilot in a real container: Charliecloud's, unprivileged, of a Debian made by debootstrap, on real Slurm."""

import contextlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from sweep.store.directory import SweepDir
from tests.support import process_kinds
from tests.support.driving import wait_for
from tests.support.faults.workload import FAULTY_MODEL
from tests.support.paths import REPOSITORY

pytestmark = [pytest.mark.slurm, pytest.mark.parallel, pytest.mark.long]

PROGRAMS = ("ch-run", "debootstrap")
MARK = "of-the-image"
WHERE = {"launcher": {False}, "leader": {False}, "agent": {True}, "fork server": {True}, "rank": {True}}
"""kind of process -> whether it is in the container"""
LIBRARIES = "python3"
"""brings the libraries of the system that the host's interpreter needs too"""


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """A root file system with nothing of the host in it but folders to mount the interpreter and the project at."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing or os.geteuid():
        pytest.skip(f"no {' or '.join(missing)} here" if missing else "debootstrap needs root")
    root = tmp_path_factory.mktemp("container") / "image"
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "stable")
    made = ["debootstrap", "--variant=minbase", f"--include={LIBRARIES}", release, str(root)]
    subprocess.run(made, check=True, capture_output=True)
    for folder in mounted():
        (root / folder.relative_to("/")).mkdir(parents=True, exist_ok=True)
    (root / MARK).touch()
    return root


def mounted():
    """At the same paths as on the host: the interpreter, its environment, and sweep."""
    return list(dict.fromkeys(map(Path, (sys.base_prefix, sys.prefix, REPOSITORY))))


def prefix(image):
    binds = [word for folder in mounted() for word in ("--bind", f"{folder}:{folder}")]
    return ["env", "USER=root", "ch-run", *binds, str(image), "--"]


def contained(process):
    try:
        return (Path(f"/proc/{process.pid}/root") / MARK).exists()
    except OSError:  # a process that no test may look at
        return False


@pytest.mark.timeout(1800)
def test_a_pilot_in_a_container_starts_measures_ends_hangs_and_cleans_up(bench, image):
    site = {"container_prefix": prefix(image)}
    faults = {"params": {"fault": ["hang", "daemon"]}, "models": [FAULTY_MODEL, "tiny-4M"]}
    launcher = bench.start(site, nodes=[2], **faults)

    seen = {}

    def all_kinds():
        with contextlib.suppress(OSError, psutil.Error):  # not there yet, or gone while it is asked
            for kind in process_kinds.LOCAL:
                seen[kind] = {contained(process) for process in process_kinds.find(kind, bench.directory, launcher)}
        return seen == WHERE or launcher.poll() is not None

    wait_for(all_kinds, 300, bench.output)
    assert seen == WHERE, bench.output()
    assert launcher.wait(900) == 0, bench.output()
    records = bench.records()
    assert {r["outcome"] for r in records if r["model"] != FAULTY_MODEL} == {"ok"}, bench.output()
    assert sorted(r["outcome"] for r in records if r["model"] == FAULTY_MODEL) == ["hang", "hang", "ok"]
    hung = next(r for r in records if r["outcome"] == "hang")
    assert "rank 1 on n" in hung["message"]
    assert "tests/support/faults/workload.py" in SweepDir(bench.directory).log(hung["run_id"], 1).read_text(), "stacks"
    assert bench.left() == []
    assert not [p.pid for p in psutil.process_iter() if contained(p)], "nothing stays in the container"
