"""Verdicts on the CUDA caching allocator's counters."""

import pytest

from sweep.diagnose.cuda_allocator import AllocatorVerdict, cuda_memory_advice, verdict_of
from sweep.diagnose.diagnose import diagnose_text

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


def message(tried="2.00 GiB", total="80.00 GiB", free="1.00 GiB", process="70.00 GiB", idle="0.50 GiB") -> str:
    return (
        f"CUDA out of memory. Tried to allocate {tried}. GPU 0 has a total capacity of {total} of which "
        f"{free} is free. "
        f"Including non-PyTorch memory, this process has {process} memory in use. Of the allocated memory 60.00 GiB is "
        f"allocated by PyTorch, and {idle} is reserved by PyTorch but unallocated."
    )


@pytest.mark.parametrize(("text", "gib"), [
    ("512 bytes", "0.00"), ("53687092 bytes", "0.05"), ("52429 KiB", "0.05"), ("1536.00 MiB", "1.50"),
    ("2.00 GiB", "2.00"), ("1 TiB", "1024.00"), ("20.00 MB", "0.02"),
])  # fmt: skip
def test_sizes_are_read_in_every_unit(text, gib):
    assert cuda_memory_advice(message(tried=text)).startswith(f"{gib} GiB were requested, ")


def test_a_message_without_figures_has_no_advice_of_its_own():
    assert cuda_memory_advice("CUDA out of memory.") is None
    assert diagnose_text("CUDA out of memory.\nTried to allocate 1.00 GiB").advice.startswith("1.00 GiB were requested")
    assert cuda_memory_advice("Tried to allocate 1.00 GiB").startswith("1.00 GiB were requested. ")


@pytest.mark.parametrize(("idle", "fragmented"), [("1.99 GiB", False), ("2.00 GiB", True), ("9.00 GiB", True)])
def test_idle_memory_that_would_have_held_the_request_is_fragmented(idle, fragmented):
    advice = cuda_memory_advice(message(idle=idle))
    assert (f"Fragmentation: {idle} are reserved but unused" in advice) is fragmented
    assert ("expandable_segments" in advice) is fragmented


OLDER = (
    "Tried to allocate 2.00 GiB (GPU 0; 14.76 GiB total capacity; {} already allocated; 19.75 MiB free; "
    "13.71 GiB reserved in total by PyTorch)"
)


@pytest.mark.parametrize(("allocated", "fragmented"), [("8.77 GiB", True), ("11.72 GiB", False), ("13.99 GiB", False)])
def test_older_messages_state_idle_memory_as_a_difference(allocated, fragmented):
    advice = cuda_memory_advice(OLDER.format(allocated))
    assert advice.startswith("2.00 GiB were requested, 0.02 GiB were free of 14.76 GiB. ")
    assert ("4.94 GiB are reserved but unused" in advice) is fragmented
    for without in (f"{allocated} already allocated; ", "13.71 GiB reserved in total"):
        assert "are reserved but unused" not in cuda_memory_advice(OLDER.format(allocated).replace(without, ""))


@pytest.mark.parametrize(("total", "others", "named"), [
    (8.0, 1.0, False), (8.0, 1.25, True), (8.0, 1.75, True), (64.0, 6.0, False), (64.0, 7.0, True), (20.0, 2.0, False),
    (20.0, 2.25, True),
])  # fmt: skip
def test_others_are_named_above_a_gib_and_a_tenth_of_the_gpu(total, others, named):
    text = message(tried="2 GiB", total=f"{total} GiB", free="0.5 GiB", process=f"{total - 0.5 - others} GiB")
    assert ("Other processes" in cuda_memory_advice(text)) is named
    if named:
        assert f"hold about {others:.2f} GiB of this GPU" in cuda_memory_advice(text)


@pytest.mark.parametrize("without", ["this process has 5.00 GiB", "a total capacity of 80.00 GiB", "1.00 GiB is free"])
def test_without_one_of_their_three_figures_other_processes_are_not_accused(without):
    text = message(process="5.00 GiB")
    assert "Other processes" in cuda_memory_advice(text)
    assert without in text
    assert "Other processes" not in cuda_memory_advice(text.replace(without, ""))
