"""Evidence of ranks that are about to be killed: the NCCL flight recorder's dump."""

import os
import pickle

from sweep.pilot.agent import evidence


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
