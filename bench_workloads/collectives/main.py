"""The entry point: measure each collective, group and size, as often as the run has iterations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from bench_workloads import hardware, process
from bench_workloads.collectives import Settings
from bench_workloads.timing import DTYPES, collective, measured_rounds, slowest_rank_s, times_of
from sweep.contract import Measurement, Phase
from sweep.physics.measured import bus_bandwidth

if TYPE_CHECKING:
    from sweep.contract import Progress, RankRun


def main(run: RankRun, progress: Progress) -> None:
    """Measure and report. Called in a separate process per rank."""
    settings = Settings.of(run)
    progress.heartbeat(Phase.START)
    device = process.pick_device(run.place)
    if device.type == "cuda":
        hardware.bind_to_near_cores(device, run.place)
    process.set_threads(run.place, 0, own_cores=False)
    process.join(run.place, device, settings.process_group_timeout_s)
    progress.measured(_measure(run, settings, device, progress))
    progress.heartbeat(Phase.FINISH)
    process.leave(settings.teardown_timeout_s)


def _measure(run: RankRun, settings: Settings, device: torch.device, progress: Progress) -> Measurement:
    cases = _cases(run, settings, device)
    times, lengths = measured_rounds(
        run, progress, lambda: [slowest_rank_s(case.call, device, settings.repeats) for case in cases]
    )
    return Measurement(
        step_times_s=lengths[run.warmup_iterations :],
        warmup_times_s=lengths[: run.warmup_iterations],
        device=hardware.name(device),
        versions=hardware.versions(device),
        effective={"world_size": dist.get_world_size(), "dtype": run.dtype},
        extra={"collectives": [_row(case, sampled) for case, sampled in zip(cases, times, strict=True)]},
    )


class _Case(NamedTuple):
    """One collective over one group at one size."""

    operation: str
    group: str
    ranks: int
    call: Callable[[], object]
    size_bytes: int


def _cases(run: RankRun, settings: Settings, device: torch.device) -> list[_Case]:
    place = run.place
    nodes = place.world_size // place.local_world_size
    mesh = init_device_mesh(device.type, (nodes, place.local_world_size), mesh_dim_names=("inter_node", "intra_node"))
    groups = {"world": dist.group.WORLD, **{name: mesh.get_group(name) for name in ("inter_node", "intra_node")}}
    process.limit_groups(settings.process_group_timeout_s)
    same_ranks = {"intra_node"} if nodes == 1 else set()
    return [
        _Case(operation, name, ranks, *collective(operation, size, DTYPES[run.dtype], device, groups[name]))
        for name in settings.groups
        if (ranks := dist.get_world_size(groups[name])) > 1 and name not in same_ranks
        for operation in settings.operations
        for size in settings.sizes
    ]


def _row(case: _Case, samples: tuple[float, ...]) -> dict[str, Any]:
    times = times_of(samples)
    return {
        "operation": case.operation,
        "group": case.group,
        "ranks": case.ranks,
        "size_bytes": case.size_bytes,
        **times,
        "algorithm_bytes_per_s": case.size_bytes / times["time_median_s"],
        "bus_bytes_per_s": bus_bandwidth(case.operation, case.size_bytes, times["time_median_s"], case.ranks),
    }
