"""Time in collectives by NCCL's flight recorder, which keeps the last entries only."""

import json

import pytest
from torch import distributed

from bench_workloads.transformer.waiting import FlightRecorder


@pytest.fixture
def recorder(monkeypatch):
    """A flight recorder, and the entries that the next dump has: (number, milliseconds)."""
    entries = []

    def dump(_collectives, _stacks):
        return json.dumps({"entries": [{"record_id": number, "duration_ms": ms} for number, ms in entries]})

    monkeypatch.setattr(distributed.distributed_c10d, "_dump_nccl_trace_json", dump, raising=False)
    monkeypatch.setattr("bench_workloads.transformer.waiting.c10d._dump_nccl_trace_json", dump, raising=False)
    return FlightRecorder(), entries


def test_a_lap_is_the_time_of_the_entries_since_the_last(recorder):
    found, entries = recorder
    entries += [(0, 10.0), (1, 20.0)]
    assert found.lap() == pytest.approx(0.03)
    entries += [(2, 5.0)]
    assert found.lap() == pytest.approx(0.005)
    assert found.lap() == 0


def test_one_overwritten_entry_makes_the_lap_unknown_and_the_next_one_is_known_again(recorder):
    found, entries = recorder
    entries += [(0, 10.0), (1, 20.0)]
    found.lap()
    entries[:] = [(3, 5.0), (4, 5.0)]
    assert found.lap() is None, "number 2 was overwritten"
    entries += [(5, 7.0)]
    assert found.lap() == pytest.approx(0.007)


def test_an_entry_without_its_time_makes_the_lap_unknown(recorder):
    found, entries = recorder
    entries += [(0, None)]
    assert found.lap() is None
