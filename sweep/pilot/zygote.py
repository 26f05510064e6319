"""The name by which a pilot that was started before `sweep.pilot.agent` was a package executes its zygotes.

Such a pilot may go on for days after its checkout was updated. To be removed when none can be left (after 0.2).
"""

import runpy

if __name__ == "__main__":
    runpy.run_module("sweep.pilot.agent.zygote", run_name="__main__", alter_sys=True)
