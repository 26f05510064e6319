"""A small real training job, torch DDP over gloo, with real faults. Registered by an entry point.

Runs of the model `tiny-1M` inject the requested fault; runs of any other model are healthy.
"""

import ctypes
import mmap
import os
import signal
import time
from pathlib import Path

from sweep.contract import Measurement, Phase, Progress, RankRun, Workload

FAULTY_MODEL = "tiny-1M"
WORKLOAD = Workload(
    name="faulty",
    takes_listener=True,
    main="tests.support.faults.workload:main",
    axes=frozenset({"dp", "micro_batch_size", "grad_accum", "dtype"}),
    preload=("torch", "torch.distributed", "torch.nn.parallel", "torch._dynamo", "tests.support.faults.workload"),
    params={"fault": "", "step_s": 0.02, "first_s": 0.0},
    choices={"dtype": ("fp32",)},
)
RANK, ITERATION = 1, 3


def main(run: RankRun, progress: Progress) -> None:
    """Train a small model; at iteration 3 rank 1 injects the fault."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    progress.heartbeat(Phase.START)
    fault = str(run.params.get("fault", "")) if run.model == FAULTY_MODEL else ""
    place = run.place
    if fault == "import_error" and place.rank == RANK:
        strike(run)
        import a_package_that_is_not_there  # noqa: F401
    store = dist.TCPStore(
        place.master_addr,
        place.master_port,
        place.world_size,
        is_master=place.rank == 0,
        master_listen_fd=place.master_listen_fd,
        multi_tenant=False,
    )
    dist.init_process_group("gloo", store=store, rank=place.rank, world_size=place.world_size)
    torch.manual_seed(place.seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1))
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    times, losses = [], []
    for number in range(run.warmup_iterations + run.iterations):
        progress.heartbeat(Phase.STEADY if number else Phase.FIRST_ITERATION, number)
        if number == ITERATION and place.rank == RANK and fault:
            strike(run)
            act(fault, run, ddp)
        begun = time.perf_counter()
        time.sleep(float(run.params.get("first_s", 0.0)) if number == 0 else float(run.params.get("step_s", 0.02)))
        optimizer.zero_grad()
        loss = ddp(torch.randn(32, 64)).pow(2).mean()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        times.append(time.perf_counter() - begun)
        losses.append(float(mean) / place.world_size)
    progress.measured(
        Measurement(
            step_times_s=times[run.warmup_iterations :],
            warmup_times_s=times[: run.warmup_iterations],
            losses=losses,
            device="cpu",
            versions={"torch": torch.__version__},
        )
    )
    progress.heartbeat(Phase.FINISH)
    dist.barrier()
    dist.destroy_process_group()


def strike(run: RankRun) -> None:
    """Record the time of the fault for the test."""
    marks = os.environ.get("FAULT_MARKS")
    if marks:
        attempt = Path(run.place.scratch_dir).name
        Path(marks, f"{attempt}.{time.time_ns()}").touch()


def act(fault: str, run: RankRun, ddp: object) -> None:
    """Inject the fault. Returns only for faults that a rank survives."""
    acts = {
        "hang": wait,
        "ignore_sigterm": ignore_sigterm,
        "daemon": leave_daemon,
        "oom_cuda": raise_out_of_memory,
        "oom_host": fill_memory,
        "kill_9": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "segfault": lambda: ctypes.string_at(0),
        "nan_loss": lambda: poison(ddp),
        "port_in_use": lambda: listen_again(run),
        "disk_full": fill_disk,
        "flood": flood,
    }
    acts[fault]()


def wait() -> None:
    while True:
        time.sleep(3600)


def ignore_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    wait()


def leave_daemon() -> None:
    """A daemon process outside session and parent, which holds memory."""
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(3, 4096)
    held = bytearray(64 << 20)
    held[::4096] = b"x" * len(held[::4096])
    time.sleep(3600)


def raise_out_of_memory() -> None:
    import torch

    raise torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.02 GiB is "
        "free. Of the allocated memory 74.51 GiB is allocated by PyTorch, and 1.83 GiB is reserved by PyTorch but "
        "unallocated."
    )


def fill_memory() -> None:
    """Allocate until the kernel's OOM killer acts: the agent runs in a memory cgroup.

    The kernel fills the pages: done from Python, it took longer than the timeout on a busy machine.
    """
    held = []
    while True:
        held.append(mmap.mmap(-1, 128 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE))


def poison(ddp: object) -> None:
    """A NaN weight: the loss of all ranks becomes NaN by the all-reduce of the gradients."""
    import torch

    with torch.no_grad():
        next(ddp.parameters()).fill_(float("nan"))


def listen_again(run: RankRun) -> None:
    """A second store on the port of the first."""
    import torch.distributed as dist

    dist.TCPStore("127.0.0.1", run.place.master_port, 1, is_master=True)


def fill_disk() -> None:
    """Write to the node's temporary directory until it is full."""
    with Path(os.environ["TMPDIR"], "checkpoint").open("wb", buffering=0) as file:
        while True:
            written = file.write(b"0" * (1 << 20))
            if not written:
                raise AssertionError("nothing was written and nothing refused")


def flood() -> None:
    """Write 2 GB in a minute, and fail."""
    begun, line = time.monotonic(), "x" * 1000
    for part in range(1, 2001):
        os.write(1, f"{line}\n".encode() * 1000)
        time.sleep(max(0.0, begun + 60 * part / 2000 - time.monotonic()))
    print("the last line of the flood", flush=True)
    raise RuntimeError("after the flood")
