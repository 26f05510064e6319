"""Time in collectives from the flight recorder's entries, as torch 2.13 writes them (FlightRecorderDetail.hpp)."""

import json
import os
import time
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

torch = pytest.importorskip("torch")

from bench_workloads.transformer import measure, waiting  # noqa: E402
from bench_workloads.transformer.data import Batches  # noqa: E402
from sweep.contract import Layout  # noqa: E402


def entry(
    number: int, duration: float | None = 2.0, *, name: str = "nccl:all_gather", state: str = "completed"
) -> dict:
    timed = {} if duration is None else {"duration_ms": duration}
    return {"record_id": number, "profiling_name": name, "state": state, "retired": duration is not None, **timed}


@pytest.fixture
def recording(monkeypatch):
    """What torch's recorder holds: each dump is the next of some states, the last one again and again."""

    def install(*states: list[dict]) -> waiting.FlightRecorder:
        held = [[], *states]

        def dump(include_collectives: bool, only_active: bool) -> str:
            return json.dumps({"version": "2.10", "entries": held.pop(0) if len(held) > 1 else held[0]})

        monkeypatch.setattr(waiting.c10d, "_dump_nccl_trace_json", dump, raising=False)
        return waiting.FlightRecorder()

    return install


def test_a_lap_is_the_time_of_the_entries_since_the_last(recording):
    first = [entry(0, 10.0), entry(1, 20.0)]
    found = recording(first, [*first, entry(2, 5.0)])
    assert [found.lap() for _ in range(3)] == pytest.approx([0.03, 0.005, 0.0])


def test_a_duration_is_waited_for_until_the_watchdog_has_retired_the_entry(recording):
    late = [entry(0), entry(1, None)]
    found = recording(late, late, late, [entry(0), entry(1, 3.0)])
    assert found.lap() == pytest.approx(0.005)
    assert found.unknown is None


def test_entries_without_events_of_their_own_are_not_waited_for(recording):
    """The single sends of a batch stay scheduled, other backends have no durations."""
    send = {"name": "nccl:send 0->1", "state": "scheduled"}
    found = recording(
        [entry(0), entry(1, None, **send), entry(2, None, name="gloo:barrier")],
        [entry(0), entry(1, 5.0, **send), entry(2, 5.0, name="gloo:barrier")],
    )
    assert found.lap() == pytest.approx(0.002), "the next look would have found them"
    assert found.unknown is None


def test_what_stays_unknown_has_a_reason(recording):
    found = recording([entry(0), entry(1, None)])
    began = time.monotonic()
    assert found.lap() is None
    assert time.monotonic() - began > 0.25
    assert "1 of 2 collectives have no duration after 0.3 s" in found.unknown


def test_a_buffer_that_was_too_small_is_noticed_and_the_next_lap_counts_again(recording, monkeypatch):
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "2")
    found = recording([entry(0)], [entry(2), entry(3)], [entry(3), entry(4, 4.0)])
    assert found.lap() == pytest.approx(0.002)
    assert found.lap() is None
    assert found.unknown == "the flight recorder's buffer of 2 entries was too small"
    assert found.lap() == pytest.approx(0.004)
    assert found.unknown is None


def test_the_buffer_holds_a_step(monkeypatch):
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "2000")
    layout = Layout(dp=8, tp=8, zero=3, grad_accum=16)
    waiting.prepare(torch.device("cuda"), waiting.most_collectives(layout, 80))
    assert int(os.environ["TORCH_FR_BUFFER_SIZE"]) >= 2 * 16 * 80 * (3 + 12)


def test_the_barrier_before_a_step_is_no_part_of_it(recording):
    """Waiting for the watchdog takes each rank another time: before the barrier, which has a name of its own."""
    before = [entry(0)]
    found = recording(before, [*before, entry(1, 50.0, name="nccl:all_reduce_barrier"), entry(2, 4.0)])
    found.catch_up()
    found.start()
    assert found.lap() == pytest.approx(0.004)


def test_ranks_catch_up_before_they_meet_and_begin_at_once_after(monkeypatch):
    """Else one rank's step would include another's wait for the watchdog, up to 0.3 s."""
    calls = Mock(unknown=None)
    calls.lap.return_value, calls.step.return_value = 0.0, None
    trainer = SimpleNamespace(
        batches=Batches(7, 16, 4, 1, slice(0, 1), torch.arange(4)),
        compute_gradients=calls.step,
        optimizer=SimpleNamespace(step=lambda: torch.ones(())),
        run=SimpleNamespace(layout=Layout()),
    )

    @contextmanager
    def watched():
        calls.counters()
        yield
        calls.counters()

    monkeypatch.setattr(measure.dist, "barrier", calls.barrier)
    monkeypatch.setattr(measure.dist, "all_reduce", lambda tensor, **_: None)
    monkeypatch.setattr(measure.dist, "get_world_size", lambda: 1)
    measure.Stopwatch(trainer, None, torch.device("cpu"), calls, watched=watched).iteration(0, measure.Samples())
    order = [name for name, *_ in calls.mock_calls]
    assert order == ["catch_up", "barrier", "counters", "barrier", "start", "step", "counters", "lap"]
