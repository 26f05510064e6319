"""What torch's out-of-memory message says: too little memory, fragments of it, or other processes."""

import pytest

from sweep.diagnose.cuda_allocator import cuda_memory_advice


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


def test_the_advice_begins_with_what_was_asked_and_what_was_there():
    assert cuda_memory_advice(message()).startswith("2.00 GiB were requested, 1.00 GiB were free of 80.00 GiB. ")
    assert cuda_memory_advice("Tried to allocate 1.00 GiB").startswith("1.00 GiB were requested. ")


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
