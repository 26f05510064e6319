"""A leader and its agents import nothing once runs have begun: an import needs a free file descriptor."""

import pytest

from sweep.state.events import AttemptStarted
from tests.support import driving

NOTE = """
import os, sys, time

def note(event, values):
    if event == "import":
        words = [getattr(sys, "argv", [""])[0], str(time.time()), values[0]]
        fd = os.open(os.environ["IMPORTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, ("\\t".join(words) + "\\n").encode())
        os.close(fd)

sys.addaudithook(note)
"""
FAULTS = ["", "exception", "import_error", "exit_code", "config_error"]
KEYS = {"nodes": 2, "micro_batch_size": 1, "iterations": 2, "params": {"step_s": 0.01, "fault": FAULTS}}
TIMEOUTS = dict.fromkeys(("start", "first_iteration", "steady"), 30)
GRID = driving.simulated({"gpus_per_node": 1, "max_local_ranks": 8}, **KEYS, timeouts=TIMEOUTS)


@pytest.mark.long
def test_leader_and_agents_import_nothing_after_the_first_run_began(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(NOTE)
    log = tmp_path / "imports"
    driving.launch(tmp_path, GRID, env={"PYTHONPATH": str(tmp_path), "IMPORTS": str(log)})
    began = min(event.time for event in driving.events_of(tmp_path / "s", AttemptStarted))
    late = set()
    for line in log.read_text().splitlines():
        program, time, module = line.split("\t")
        if program.endswith(("pilot/leader/start.py", "pilot/agent/__main__.py")) and float(time) > began:
            late.add(module)
    assert late == set()
    assert {record["outcome"] for record in driving.records_of(tmp_path / "s")} > {"ok", "python_exception"}
