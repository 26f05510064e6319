"""On PYTHONPATH: what simulated ranks leak is a `sleep` for the run's ``fault_s``, with an empty environment."""

import os

from bench_workloads.simulated import faults


def leak(seconds: float) -> None:
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(0, 4096)
    os.chdir("/")
    os.execve("/bin/sleep", ["sleep", str(seconds)], {})


faults._leak_child = leak
