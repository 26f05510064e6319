"""Evidence of ranks that are about to be killed: the NCCL flight recorder's dump."""

import asyncio
import os
import pickle
import sys
from pathlib import Path

from sweep.pilot.agent import evidence
from sweep.pilot.agent.ranks import Rank


def test_a_flight_recorder_dump_is_described_and_runs_nothing(tmp_path):
    entry = {"profiling_name": "nccl:all_reduce", "collective_seq_id": 41, "state": "started", "input_sizes": [[4]]}
    done = {**entry, "collective_seq_id": 40, "state": "completed"}
    (tmp_path / "flight.3").write_bytes(pickle.dumps({"version": "2.10", "entries": [done, entry]}))
    assert "nccl:all_reduce number 41 is started" in evidence.dump_text(tmp_path, 3)

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    (tmp_path / "flight.4").write_bytes(pickle.dumps({"entries": [Evil()]}))
    assert evidence.dump_text(tmp_path, 4) == ""
    assert not (tmp_path / "ran").exists()
    assert evidence.dump_text(tmp_path, 5) == ""
    evidence.ask_for_dump(tmp_path, 5)


LISTENER = """
import os, pathlib, pickle, signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: pathlib.Path("stacks.0").write_text("File train.py, line 7"))
os.mkfifo("flight.0.pipe")
pipe = os.open("flight.0.pipe", os.O_RDONLY | os.O_NONBLOCK)
pathlib.Path("stacks.0").write_text("")
while True:
    time.sleep(1)
    try:
        asked = os.read(pipe, 10)
    except BlockingIOError:
        continue
    if asked:
        entry = {"profiling_name": "nccl:all_gather", "collective_seq_id": 7, "state": "started", "input_sizes": []}
        pathlib.Path("flight.0").write_bytes(pickle.dumps({"entries": [entry]}))
"""


def test_a_dump_is_waited_for_as_long_as_torch_takes_to_look_for_the_request(running, tmp_path):
    """Once a second by default, the thread that polls the pipe being another one than the rank's main thread."""
    process = running(sys.executable, "-c", LISTENER, cwd=tmp_path)
    while not (tmp_path / "stacks.0").exists():
        assert process.poll() is None
    (found,) = asyncio.run(evidence.gather([Rank(0, Path(), process.pid)], tmp_path)).values()
    assert "all_gather number 7 is started" in found
