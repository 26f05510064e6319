"""What a machine cannot run is listed at the end of the tests, with the command that would add it."""

import os
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.support.left_out import pytest_terminal_summary
from tests.support.paths import REPOSITORY

SYSTEM_PACKAGES = REPOSITORY / "tests/support/system-packages"


def test_the_list_names_the_command_and_the_exit_status_is_0():
    """Also where the variable is set but empty, which names no folder."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/search/test_published.py"]
    env = {**os.environ, "SWEEP_REFERENCE_DATA": ""}
    done = subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "tests: SWEEP_REFERENCE_DATA is not set" in done.stdout
    assert "this adds those for SWEEP_REFERENCE_DATA:  make test SWEEP_REFERENCE_DATA=FOLDER" in done.stdout


def test_a_library_that_the_browsers_driver_needs_is_listed(tmp_path):
    """Programs are found by name, a library by what the linker knows. Without apt-get nothing is installed."""
    listed = re.search(r"<<'LIST'.*?\n(.*?)\nLIST\n", SYSTEM_PACKAGES.read_text(), re.DOTALL)[1].splitlines()
    programs = {line.split()[0] for line in listed if ".so." not in line}
    for name in (*programs, "ldconfig"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    for name in ("sort", "xargs", "echo", "grep"):
        (tmp_path / name).symlink_to(shutil.which(name))

    def printed():
        command = [shutil.which("bash"), SYSTEM_PACKAGES]
        return subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True).stdout

    assert printed() == "not installed, so some tests are left out: libatomic1 (Debian's names)\n"
    (tmp_path / "ldconfig").write_text("#!/bin/sh\necho '\tlibatomic.so.1 (libc6,x86-64) => /lib/libatomic.so.1'\n")
    assert printed() == ""


class Terminal:
    """What pytest's terminal reporter is asked for."""

    def __init__(self, *reasons):
        self.stats = {"skipped": [SimpleNamespace(longrepr=("a.py", 1, f"Skipped: {reason}")) for reason in reasons]}
        self.lines = []

    def section(self, title):
        self.lines.append(title)

    def write_line(self, line):
        self.lines.append(line)


@pytest.mark.parametrize("user", [0, 1000])
def test_only_an_ordinary_user_is_asked_to_become_root(user, monkeypatch):
    """What a machine does not allow root, no command adds."""
    monkeypatch.setattr(os, "geteuid", lambda: user)
    terminal = Terminal("no network namespace can be made here", "SWEEP_REFERENCE_DATA is not set")
    pytest_terminal_summary(terminal)
    assert terminal.lines == [
        "left out on this machine",
        "1 test: no network namespace can be made here",
        "1 test: SWEEP_REFERENCE_DATA is not set",
        *(["this adds those for namespace:  sudo make test"] if user else []),
        "this adds those for SWEEP_REFERENCE_DATA:  make test SWEEP_REFERENCE_DATA=FOLDER",
    ]


def test_where_ip_is_not_installed_the_tests_of_a_cut_network_are_left_out(tmp_path):
    """On such a machine, as an ordinary user has it."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/faults/test_network.py"]
    env = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run(
        [*command, "-k", "cut_off_comes_back"], cwd=REPOSITORY, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "no network namespace can be made here: ip is not installed" in done.stdout
