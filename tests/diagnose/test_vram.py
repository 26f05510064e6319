"""What torch's out-of-memory message says: too little memory, fragments of it, or other processes."""

import pytest

from sweep.diagnose.cuda_allocator import CudaMemory, cuda_memory_advice, parse_cuda_memory

GIB = 2**30


def message(tried="2.00 GiB", total="80.00 GiB", free="1.00 GiB", process="70.00 GiB", idle="0.50 GiB") -> str:
    return (
        f"CUDA out of memory. Tried to allocate {tried}. GPU 0 has a total capacity of {total} of which "
        f"{free} is free. "
        f"Including non-PyTorch memory, this process has {process} memory in use. Of the allocated memory 60.00 GiB is "
        f"allocated by PyTorch, and {idle} is reserved by PyTorch but unallocated."
    )


@pytest.mark.parametrize(("text", "bytes_"), [
    ("512 bytes", 512), ("2 KiB", 2048), ("1.50 MiB", 1.5 * 2**20), ("2.00 GiB", 2 * GIB), ("1 TiB", 2**40),
    ("20.00 MB", 20 * 2**20),
])  # fmt: skip
def test_sizes_are_read_in_every_unit(text, bytes_):
    assert parse_cuda_memory(message(tried=text)).tried_bytes == bytes_


def test_every_figure_of_the_message_is_read():
    assert parse_cuda_memory(message()) == CudaMemory(
        tried_bytes=2 * GIB, total_bytes=80 * GIB, free_bytes=GIB, process_bytes=70 * GIB, allocated_bytes=60 * GIB,
        unallocated_bytes=0.5 * GIB,
    )  # fmt: skip
    assert parse_cuda_memory("no figure") == CudaMemory()
    assert cuda_memory_advice("CUDA out of memory.") is None


@pytest.mark.parametrize(("idle", "fragmented"), [("1.99 GiB", False), ("2.00 GiB", True), ("9.00 GiB", True)])
def test_idle_memory_that_would_have_held_the_request_is_fragmented(idle, fragmented):
    assert parse_cuda_memory(message(idle=idle)).fragmented is fragmented
    assert ("expandable_segments" in cuda_memory_advice(message(idle=idle))) is fragmented


def test_older_messages_state_idle_memory_as_a_difference():
    older = CudaMemory(tried_bytes=2 * GIB, reserved_bytes=9 * GIB, allocated_bytes=6 * GIB)
    assert older.idle_bytes == 3 * GIB
    assert CudaMemory(reserved_bytes=5 * GIB, allocated_bytes=6 * GIB).idle_bytes == 0
    assert CudaMemory(reserved_bytes=5 * GIB).idle_bytes is None
    assert not CudaMemory(tried_bytes=1.0).fragmented
    assert not CudaMemory(reserved_bytes=9.0, allocated_bytes=1.0).fragmented


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
