"""The pilot's own job and its end."""

import subprocess
import sys

PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


CHILD = """
from sweep.pilot.job import StepDaemon
above = StepDaemon()
print(above.died, flush=True)
input()
print(above.died, flush=True)
"""


def test_a_leader_notices_that_the_daemon_above_it_died():
    above = subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert above.stdout.readline() == "False\n"
    above.kill()
    above.wait()
    above.stdin.write("\n")
    above.stdin.flush()
    assert above.stdout.readline() == "True\n"
