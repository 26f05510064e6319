"""Verdicts on the CUDA caching allocator's counters."""

from __future__ import annotations

import pytest

from sweep.diagnose.cuda_allocator import verdict_of

GIB = 2**30
CALM = {
    "num_alloc_retries": 3,
    "num_ooms": 0,
    "num_device_alloc": 40,
    "num_device_free": 4,
    "inactive_split_bytes.all.peak": 1 * GIB,
    "reserved_bytes.all.peak": 70 * GIB,
    "reserved_bytes.all.current": 70 * GIB,
    "allocated_bytes.all.peak": 60 * GIB,
    "requested_bytes.all.peak": 59 * GIB,
}


def test_calm_iterations_have_no_finding() -> None:
    verdict = verdict_of(CALM, CALM, device_free_bytes=8 * GIB, device_total_bytes=79 * GIB)
    assert (verdict.pressure, verdict.fragmented, verdict.cache_thrash) == (False, False, False)
    assert verdict.non_torch_bytes == GIB
    assert verdict.findings == ()


def test_retries_in_the_timed_iterations_are_pressure() -> None:
    verdict = verdict_of(CALM, {**CALM, "num_alloc_retries": 5})
    assert verdict.pressure is True
    assert verdict.alloc_retries == 2
    assert "not valid" in verdict.findings[0]


def test_idle_split_blocks_with_retries_are_fragmentation() -> None:
    after = {**CALM, "num_alloc_retries": 4, "inactive_split_bytes.all.peak": 14 * GIB}
    verdict = verdict_of(CALM, after)
    assert verdict.fragmented is True
    assert any("expandable_segments" in text for text in verdict.findings)


def test_idle_split_blocks_alone_are_not() -> None:
    assert verdict_of(CALM, {**CALM, "inactive_split_bytes.all.peak": 14 * GIB}).fragmented is False


def test_device_calls_after_the_warm_up_are_thrash() -> None:
    verdict = verdict_of(CALM, {**CALM, "num_device_alloc": 46, "num_device_free": 10})
    assert verdict.cache_thrash is True
    assert verdict.device_allocs == 12
    assert "after the warm-up" in verdict.findings[0]


def test_rounding_and_memory_outside_torch_are_reported() -> None:
    after = {**CALM, "requested_bytes.all.peak": 50 * GIB}
    verdict = verdict_of(CALM, after, device_free_bytes=2 * GIB, device_total_bytes=79 * GIB)
    assert verdict.rounding == pytest.approx(1.2)
    assert [text.split(":")[0] for text in verdict.findings] == [
        "Rounding",
        "7.0 GiB of the device are used outside torch's allocator",
    ]


def test_missing_counters_are_unknown_not_false() -> None:
    verdict = verdict_of({}, {})
    assert verdict.pressure is None
    assert verdict.fragmented is None
    assert verdict.cache_thrash is None
    assert verdict.non_torch_bytes is None
    assert verdict.findings == ()


@pytest.mark.parametrize(("share", "fragmented"), [(0.15, False), (0.16, True)])
def test_a_seventh_of_the_reserved_memory_idle_in_fragments_is_fragmented_where_requests_failed(
    share: float, fragmented: bool
) -> None:
    idle = {"inactive_split_bytes.all.peak": share * 100 * GIB, "reserved_bytes.all.peak": 100 * GIB}
    assert verdict_of(CALM, {**CALM, **idle, "num_alloc_retries": 4}).fragmented is fragmented
    assert verdict_of(CALM, {**CALM, **idle, "num_ooms": 1}).fragmented is fragmented
    assert verdict_of(CALM, {**CALM, **idle}).fragmented is False


def test_an_out_of_memory_that_the_program_survived_is_pressure() -> None:
    assert verdict_of(CALM, {**CALM, "num_ooms": 1}).pressure is True


@pytest.mark.parametrize(("name", "unknown"), [
    ("num_alloc_retries", {"pressure", "fragmented", "alloc_retries"}),
    ("num_ooms", {"ooms"}),
    ("inactive_split_bytes.all.peak", {"idle_share", "fragmented"}),
    ("reserved_bytes.all.peak", {"idle_share", "fragmented"}),
    ("allocated_bytes.all.peak", {"rounding"}),
    ("requested_bytes.all.peak", {"rounding"}),
    ("reserved_bytes.all.current", {"non_torch_bytes"}),
    ("device_free_bytes", {"non_torch_bytes"}),
    ("device_total_bytes", {"non_torch_bytes"}),
])  # fmt: skip
def test_a_missing_counter_leaves_unknown_what_it_decides_and_nothing_else(name: str, unknown: set[str]) -> None:
    sizes = {"device_free_bytes": 8 * GIB, "device_total_bytes": 79 * GIB}
    stats = {key: value for key, value in CALM.items() if key != name}
    verdict = verdict_of(stats, stats, **{key: value for key, value in sizes.items() if key != name})
    assert {key for key, value in vars(verdict).items() if value is None} == unknown


@pytest.mark.parametrize("name", ["num_device_alloc", "num_device_free"])
def test_one_of_the_two_counters_of_device_calls_is_enough(name: str) -> None:
    stats = {key: value for key, value in CALM.items() if key != name}
    other = {"num_device_alloc": "num_device_free", "num_device_free": "num_device_alloc"}[name]
    assert verdict_of(stats, {**stats, other: CALM[other] + 3}).device_allocs == 3


def test_a_device_that_reports_nothing_requested_or_reserved_has_no_shares() -> None:
    empty = {**CALM, "requested_bytes.all.peak": 0, "reserved_bytes.all.peak": 0}
    verdict = verdict_of(empty, empty)
    assert (verdict.rounding, verdict.idle_share, verdict.fragmented) == (None, None, None)


def test_findings_state_their_figures() -> None:
    after = {
        **CALM, "num_alloc_retries": 5, "inactive_split_bytes.all.peak": 14 * GIB, "requested_bytes.all.peak": 50 * GIB
    }  # fmt: skip
    pressure, fragmentation, rounding, outside = verdict_of(
        CALM, after, device_free_bytes=2 * GIB, device_total_bytes=79 * GIB
    ).findings
    assert pressure.startswith("Memory pressure: 2 times ")
    assert fragmentation.startswith("Fragmentation: 20% of the reserved memory ")
    assert rounding.startswith("Rounding: 20% more was allocated than requested")
    assert outside.startswith("7.0 GiB of the device ")


@pytest.mark.parametrize("name", ["num_device_alloc", "num_device_free"])
def test_one_device_call_after_the_warm_up_is_thrash(name: str) -> None:
    verdict = verdict_of(CALM, {**CALM, name: CALM[name] + 1})
    assert (verdict.cache_thrash, verdict.device_allocs) == (True, 1)
    assert "1 times after the warm-up" in verdict.findings[0]
    both = verdict_of(CALM, {**CALM, name: CALM[name] + 1, "num_alloc_retries": 4})
    assert both.cache_thrash is True
    assert len(both.findings) == 1, "pressure explains it"


@pytest.mark.parametrize(("allocated", "found"), [(110, 0), (111, 1)])
def test_a_tenth_more_than_requested_is_rounding(allocated: int, found: int) -> None:
    sizes = {"allocated_bytes.all.peak": allocated, "requested_bytes.all.peak": 100}
    assert len(verdict_of(CALM, {**CALM, **sizes}).findings) == found


@pytest.mark.parametrize(("free", "outside", "found"), [(7, 2, 0), (6, 3, 1), (20, 0, 0)])
def test_more_than_two_gib_outside_torch_is_reported(free: int, outside: int, found: int) -> None:
    verdict = verdict_of(CALM, CALM, device_free_bytes=free * GIB, device_total_bytes=79 * GIB)
    assert verdict.non_torch_bytes == outside * GIB
    assert len(verdict.findings) == found
