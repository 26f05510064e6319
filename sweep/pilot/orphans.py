"""Old module name: a pilot started before `sweep.pilot.agent` was a package clears orphans by it.

See `sweep.pilot.zygote`, which exists for the same reason and as long.
"""

import runpy

if __name__ == "__main__":
    runpy.run_module("sweep.pilot.agent.orphans", run_name="__main__", alter_sys=True)
