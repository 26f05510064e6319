"""Old module name: a pilot started before `sweep.pilot.agent` was a package executes its zygotes by it.

Such a pilot may run for days after its checkout was updated. Remove when none can be left (after 0.2).
"""

import runpy

if __name__ == "__main__":
    runpy.run_module("sweep.pilot.agent.zygote", run_name="__main__", alter_sys=True)
