"""Verdicts on the CUDA caching allocator's counters."""

import pytest

from sweep.diagnose.cuda_allocator import AllocatorVerdict, verdict_of

GIB = 2**30
COUNTERS = {"num_alloc_retries": 0, "num_ooms": 0, "num_device_alloc": 0, "num_device_free": 0}
PEAKS = {
    "inactive_split_bytes.all.peak": 1 * GIB,
    "reserved_bytes.all.peak": 70 * GIB,
    "allocated_bytes.all.peak": 60 * GIB,
    "requested_bytes.all.peak": 59 * GIB,
}


def verdict(outside: int | None = GIB, **changes: float) -> AllocatorVerdict:
    """Of calm iterations with these changes."""
    peaks = {f"{name}_bytes.all.peak": value for name, value in changes.items() if not name.startswith("num_")}
    return verdict_of(
        {**COUNTERS, **{n: v for n, v in changes.items() if n.startswith("num_")}}, PEAKS | peaks, outside
    )


def test_calm_iterations_have_no_finding() -> None:
    calm = verdict()
    assert (calm.pressure, calm.fragmented, calm.cache_thrash) == (False, False, False)
    assert calm.non_torch_bytes == GIB
    assert calm.findings == ()


def test_retries_or_an_out_of_memory_that_the_program_survived_are_pressure() -> None:
    retried = verdict(num_alloc_retries=2)
    assert (retried.pressure, retried.alloc_retries) == (True, 2)
    assert "not valid" in retried.findings[0]
    assert verdict(num_ooms=1).pressure is True


@pytest.mark.parametrize(("share", "fragmented"), [(0.15, False), (0.16, True)])
def test_a_seventh_of_the_reserved_memory_idle_in_fragments_is_fragmented_where_requests_failed(
    share: float, fragmented: bool
) -> None:
    idle = {"inactive_split": share * 100 * GIB, "reserved": 100 * GIB}
    assert verdict(**idle, num_alloc_retries=1).fragmented is fragmented
    assert verdict(**idle, num_ooms=1).fragmented is fragmented
    assert verdict(**idle).fragmented is False


@pytest.mark.parametrize("name", [*COUNTERS, *PEAKS, "outside"])
def test_a_missing_counter_leaves_unknown_what_it_decides_and_nothing_else(name: str) -> None:
    unknown = {
        "num_alloc_retries": {"pressure", "fragmented", "alloc_retries"},
        "num_ooms": {"ooms"},
        "inactive_split_bytes.all.peak": {"idle_share", "fragmented"},
        "reserved_bytes.all.peak": {"idle_share", "fragmented"},
        "allocated_bytes.all.peak": {"rounding"},
        "requested_bytes.all.peak": {"rounding"},
        "outside": {"non_torch_bytes"},
    }
    counters, peaks = ({k: v for k, v in values.items() if k != name} for values in (COUNTERS, PEAKS))
    found = verdict_of(counters, peaks, None if name == "outside" else GIB)
    assert {key for key, value in vars(found).items() if value is None} == unknown.get(name, set())


def test_one_of_the_two_counters_of_device_calls_is_enough_and_both_are_added() -> None:
    assert verdict_of({"num_device_alloc": 3}, {}).device_allocs == 3
    assert verdict_of({"num_device_free": 3}, {}).device_allocs == 3
    assert verdict(num_device_alloc=6, num_device_free=7).device_allocs == 13


def test_a_device_that_reports_nothing_requested_or_reserved_has_no_shares() -> None:
    empty = verdict(requested=0, reserved=0)
    assert (empty.rounding, empty.idle_share, empty.fragmented) == (None, None, None)


def test_findings_state_their_figures() -> None:
    found = verdict(num_alloc_retries=2, inactive_split=14 * GIB, requested=50 * GIB, outside=77 * GIB).findings
    pressure, fragmentation, rounding, outside = found
    assert pressure.startswith("Memory pressure: 2 times ")
    assert fragmentation.startswith("Fragmentation: 20% of the reserved memory ")
    assert "expandable_segments" in fragmentation
    assert rounding.startswith("Rounding: 20% more was allocated than requested")
    assert outside.startswith("77.0 GiB of the device are used outside torch's allocator")


def test_growing_segments_are_not_advised_where_they_are_set() -> None:
    peaks = PEAKS | {"inactive_split_bytes.all.peak": 30 * GIB}
    found = verdict_of({**COUNTERS, "num_alloc_retries": 1}, peaks, GIB, "expandable_segments:True,pinned_use:x")
    fragmentation = next(text for text in found.findings if text.startswith("Fragmentation"))
    assert "set PYTORCH" not in fragmentation
    assert "segments grow already" in fragmentation


@pytest.mark.parametrize(("name", "calls"), [("num_device_alloc", 2), ("num_device_free", 1)])
def test_memory_that_is_returned_or_taken_again_and_again_after_the_warm_up_is_thrash(name: str, calls: int) -> None:
    found = verdict(**{name: calls})
    assert (found.cache_thrash, found.device_allocs) == (True, calls)
    assert f"{calls} times after the warm-up" in found.findings[0]
    once = verdict(num_device_alloc=1)  # as on an H200, in the first timed step
    assert (once.cache_thrash, once.findings) == (False, ())
    both = verdict(**{name: calls}, num_alloc_retries=1)
    assert both.cache_thrash is True
    assert len(both.findings) == 1, "pressure explains it"


@pytest.mark.parametrize(("allocated", "found"), [(110, 0), (111, 1)])
def test_a_tenth_more_than_requested_is_rounding(allocated: int, found: int) -> None:
    assert len(verdict(allocated=allocated, requested=100).findings) == found


@pytest.mark.parametrize(("outside", "found"), [(2, 0), (3, 1), (0, 0)])
def test_more_than_two_gib_outside_torch_is_reported(outside: int, found: int) -> None:
    assert len(verdict(outside=outside * GIB).findings) == found
