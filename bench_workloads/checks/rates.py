"""Entry point of tier ``perf``: how fast one node multiplies, copies, and exchanges data among its own ranks.

The same code on GPUs and CPUs. On GPUs each rank measures its own, all at once; the CPUs of a node are one device,
which rank 0 measures while the others wait.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from bench_workloads import hardware, process
from sweep.contract import Measurement, Phase

if TYPE_CHECKING:
    from sweep.contract import Progress, RankRun

SAMPLES = 7
"""timings of each operation; the fastest counts: other programs only make one slower"""
ENOUGH_S = 4.0
"""what is as slow as this needs no more timings"""
SAMPLE_S = 0.2
"""length of each: two periods of a cgroup's CPU quota, so that none falls between two pauses"""
MATMUL = {"cuda": 8192, "cpu": 1024}
"""size of the square product: 8192 as Primus' smoke test; on a CPU it takes tenths of a second"""
COPY_BYTES = {"cuda": 1 << 30, "cpu": 1 << 26}
"""beyond all caches"""
HOST_BYTES = 1 << 28
REDUCE_BYTES = {"cuda": (1 << 26, 1 << 30), "cpu": (1 << 23,)}
TIMEOUT_S = 60.0


def main(run: RankRun, progress: Progress) -> None:
    """Measure and report."""
    progress.heartbeat(Phase.START)
    device = process.pick_device(run.place)
    alone = device.type == "cpu"
    if not alone:  # as the transformer's ranks: else a far core's copies accuse the node
        hardware.bind_to_near_cores(device, run.place)
    process.set_threads(run.place, 0, own_cores=alone and run.place.rank == 0)
    process.join(run.place, device, TIMEOUT_S)
    found: dict[str, Any] = {}
    began = time.perf_counter()
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    operations = {"matmul": partial(matmul, device, dtype), "memory_copy": partial(memory_copy, device)}
    if device.type == "cuda":
        operations["host_to_gpu"] = partial(host_copy, device, True)
        operations["gpu_to_host"] = partial(host_copy, device, False)
        operations["pairs"] = partial(pairs, device)
    for number, (name, measure) in enumerate(operations.items()):
        progress.heartbeat(Phase.STEADY if number else Phase.FIRST_ITERATION, number)
        if name == "pairs":  # one GPU after the other: they share the links
            for turn in range(run.place.world_size):
                progress.heartbeat(Phase.STEADY, number)
                found |= {name: measure()} if turn == run.place.rank else {}
                dist.barrier()
        elif not alone or run.place.rank == 0:
            found[name] = measure()
        dist.barrier()
    process.set_threads(run.place, 0, own_cores=False)
    found["all_reduce"] = all_reduce(device, progress) if run.place.world_size > 1 else []
    progress.measured(
        Measurement(
            step_times_s=[time.perf_counter() - began],
            device=hardware.name(device),
            versions=hardware.versions(device),
            extra={"rates": found},
        )
    )
    progress.heartbeat(Phase.FINISH)
    process.leave(TIMEOUT_S)


def matmul(device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """FLOP/s of a large square product."""
    size = MATMUL[device.type]
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    out = torch.empty_like(left)
    name = str(dtype).removeprefix("torch.").replace("bfloat16", "bf16").replace("float32", "fp32")
    return {"dtype": name, **_rate(lambda: torch.mm(left, right, out=out), 2 * size**3, device)}


def memory_copy(device: torch.device) -> dict[str, Any]:
    """Bytes read and written per second by a copy."""
    source = torch.zeros(COPY_BYTES[device.type], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return _rate(lambda: target.copy_(source), 2 * source.numel(), device)


def host_copy(device: torch.device, to_gpu: bool) -> dict[str, Any]:
    """Bytes per second between pinned host memory and the GPU, with the link's generation and width."""
    host = torch.empty(HOST_BYTES, dtype=torch.uint8, pin_memory=True)
    on_gpu = torch.empty(HOST_BYTES, dtype=torch.uint8, device=device)
    source, target = (host, on_gpu) if to_gpu else (on_gpu, host)
    return _rate(lambda: target.copy_(source, non_blocking=True), HOST_BYTES, device)


def pairs(device: torch.device) -> dict[str, Any]:
    """Bytes per second from this GPU to each other of the node that it can reach, the slowest; None without others.

    In compute mode Exclusive_Process another rank has the other GPU for itself: then the pair is not measured.
    """
    found: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for other in range(torch.cuda.device_count()):
        if other != device.index and torch.cuda.can_device_access_peer(device.index, other):
            source = torch.empty(HOST_BYTES, dtype=torch.uint8, device=device)
            try:
                target = torch.empty(HOST_BYTES, dtype=torch.uint8, device=f"cuda:{other}")
            except RuntimeError as error:
                refused[str(other)] = str(error).splitlines()[0]
                continue
            found[str(other)] = _rate(partial(target.copy_, source, non_blocking=True), HOST_BYTES, device)
    slowest_pair = min((one["per_second"] for one in found.values()), default=None)
    return {"per_second": slowest_pair, "to": found, **({"refused": refused} if refused else {})}


def all_reduce(device: torch.device, progress: Progress) -> list[dict[str, Any]]:
    """Seconds of an all-reduce of the node's ranks, of the slowest rank, for each size."""
    rows = []
    for number, size in enumerate(REDUCE_BYTES[device.type]):
        buffer = torch.ones(size // 4, dtype=torch.float32, device=device)
        beat = partial(progress.heartbeat, Phase.STEADY, 10 + number)
        times = slowest(partial(dist.all_reduce, buffer), device, beat)
        rows.append({"bytes": size, "ranks": dist.get_world_size(), **times})
    return rows


def slowest(
    call: Callable[[], object], device: torch.device, heartbeat: Callable[[], None], repeats: int = 3
) -> dict[str, float]:
    """Median seconds of one call, of the slowest rank, and the standard deviation of its logarithm."""
    times = []
    for _ in range(SAMPLES):
        heartbeat()
        dist.barrier()
        seconds = torch.tensor(seconds_per_call(call, device, repeats), dtype=torch.float64, device=device)
        dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
        times.append(float(seconds.item()))
        if len(times) > 1 and sum(times) * repeats > ENOUGH_S:  # the same on all ranks
            break
    return {"seconds": statistics.median(times), "least_s": min(times), "spread": _spread(times)}


def seconds_per_call(call: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Mean seconds of ``repeats`` consecutive calls, after one warm-up call; on a GPU by CUDA events."""
    call()
    if device.type != "cuda":
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        return (time.perf_counter() - start) / repeats
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    begin.record()
    for _ in range(repeats):
        call()
    end.record()
    torch.cuda.synchronize(device)
    return float(begin.elapsed_time(end)) / 1e3 / repeats


def _rate(call: Callable[[], object], amount: float, device: torch.device) -> dict[str, float]:
    repeats = min(1000, math.ceil(SAMPLE_S / seconds_per_call(call, device, 1)))
    times = [seconds_per_call(call, device, repeats) for _ in range(SAMPLES)]
    return {"per_second": amount / min(times), "spread": _spread(times)}


def _spread(times: list[float]) -> float:
    return statistics.stdev(math.log(one) for one in times)
