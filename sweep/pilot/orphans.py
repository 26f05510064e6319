"""The name by which a pilot that was started before `sweep.pilot.agent` was a package has orphans cleared.

See `sweep.pilot.zygote`, which is there for the same reason and as long.
"""

import runpy

if __name__ == "__main__":
    runpy.run_module("sweep.pilot.agent.orphans", run_name="__main__", alter_sys=True)
