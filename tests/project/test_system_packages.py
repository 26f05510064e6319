"""What the tests need of the system is looked for by name."""

import re
import shutil
import subprocess

from tests.support.paths import REPOSITORY

SYSTEM_PACKAGES = REPOSITORY / "tests/support/system-packages"


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
