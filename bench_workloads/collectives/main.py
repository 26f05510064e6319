"""The entry point: measure each collective, group and size, as often as the run has iterations."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from bench_workloads import hardware, process
from bench_workloads.collectives import Settings, bus_bandwidth
from bench_workloads.timing import DTYPES, measured_rounds, seconds_per_call
from sweep.contract import Measurement, Phase

if TYPE_CHECKING:
    from torch import Tensor

    from sweep.contract import Progress, RankRun

# torch 2.13 renames the two that take one tensor
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def main(run: RankRun, progress: Progress) -> None:
    """Measure and report. Called in a separate process per rank."""
    settings = Settings.of(run)
    progress.heartbeat(Phase.START)
    device = process.pick_device(run.place)
    process.set_threads(run.place, 0, own_cores=False)
    process.join(run.place, device, settings.process_group_timeout_s)
    progress.measured(_measure(run, settings, device, progress))
    progress.heartbeat(Phase.FINISH)
    process.leave(settings.teardown_timeout_s)


def _measure(run: RankRun, settings: Settings, device: torch.device, progress: Progress) -> Measurement:
    cases = _cases(run, settings, device)
    times, lengths = measured_rounds(
        run, progress, lambda: [_slowest(case, device, settings.repeats) for case in cases]
    )
    return Measurement(
        step_times_s=lengths[run.warmup_iterations :],
        warmup_times_s=lengths[: run.warmup_iterations],
        device=hardware.name(device),
        versions=hardware.versions(device),
        effective={"world_size": dist.get_world_size(), "dtype": run.dtype},
        extra={"collectives": [_row(case, sampled) for case, sampled in zip(cases, times, strict=True)]},
    )


class _Case:
    """One collective over one group at one size."""

    def __init__(self, operation: str, group_name: str, group: Any, size: int, dtype: torch.dtype, device: Any) -> None:
        self.operation, self.group_name, self.group = operation, group_name, group
        self.ranks = dist.get_world_size(group)
        per_rank = max(1, size // (dtype.itemsize * self.ranks))
        self.size_bytes = per_rank * self.ranks * dtype.itemsize
        self._whole = torch.ones(per_rank * self.ranks, dtype=dtype, device=device)
        self._part = torch.ones(per_rank, dtype=dtype, device=device)
        self._other = torch.empty_like(self._whole)

    def call(self) -> None:
        """Run it once."""
        calls: dict[str, Callable[[], object]] = {
            "all_reduce": lambda: dist.all_reduce(self._whole, group=self.group),
            "all_gather": lambda: _all_gather(self._whole, self._part, group=self.group),
            "reduce_scatter": lambda: _reduce_scatter(self._part, self._whole, group=self.group),
            "all_to_all": lambda: dist.all_to_all_single(self._other, self._whole, group=self.group),
            "p2p": lambda: _to_the_next(self._whole, self._other, self.group),
        }
        calls[self.operation]()


def _to_the_next(sent: Tensor, received: Tensor, group: Any) -> None:
    """Every rank sends to the next rank and receives from the previous one, as nccl-tests' sendrecv."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    after = dist.get_global_rank(group, (rank + 1) % ranks)
    before = dist.get_global_rank(group, (rank - 1) % ranks)
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, sent, after, group), dist.P2POp(dist.irecv, received, before, group)]
    )
    for work in works:
        work.wait()


def _cases(run: RankRun, settings: Settings, device: torch.device) -> list[_Case]:
    place = run.place
    nodes = place.world_size // place.local_world_size
    mesh = init_device_mesh(device.type, (nodes, place.local_world_size), mesh_dim_names=("inter_node", "intra_node"))
    groups = {"world": dist.group.WORLD, **{name: mesh.get_group(name) for name in ("inter_node", "intra_node")}}
    same_ranks = {"intra_node"} if nodes == 1 else set()
    return [
        _Case(operation, name, groups[name], size, DTYPES[run.dtype], device)
        for name in settings.groups
        if dist.get_world_size(groups[name]) > 1 and name not in same_ranks
        for operation in settings.operations
        for size in settings.sizes
    ]


def _slowest(case: _Case, device: torch.device, repeats: int) -> float:
    """Seconds of one call, of the slowest rank."""
    dist.barrier()
    seconds = torch.tensor(seconds_per_call(case.call, device, repeats), dtype=torch.float64, device=device)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return float(seconds.item())


def _row(case: _Case, times: tuple[float, ...]) -> dict[str, Any]:
    median = statistics.median(times)
    return {
        "operation": case.operation,
        "group": case.group_name,
        "ranks": case.ranks,
        "size_bytes": case.size_bytes,
        "time_median_s": median,
        "time_min_s": min(times),
        "time_max_s": max(times),
        "algorithm_bytes_per_s": case.size_bytes / median,
        "bus_bytes_per_s": bus_bandwidth(case.operation, case.size_bytes, median, case.ranks),
    }
