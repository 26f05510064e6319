"""A pilot's job spec: everything its leader needs besides the plan. The launcher writes it once, next to its script."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from sweep.physics.hardware import GPUS, Gpu
from sweep.store.directory import write_once

FILE_NAME = "job.json"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Longest time between heartbeats per phase, and the longest attempt, in seconds."""

    start_s: float
    first_iteration_s: float
    steady_s: float
    """floor of the steady limit"""
    steady_factor: float = 5.0
    """the steady limit is this many median iterations, where that is above the floor"""
    finish_s: float = 15.0
    """teardown after the measurement, which is kept whatever happens: it costs the next run this long at most"""
    attempt_s: float


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """What one pilot's job is to do, where, and within which limits."""

    name: str
    token: str
    sweep_name: str
    nodes: int
    node_group: str = ""
    """of the site, on which it measures runs; empty on a site without groups"""
    gpus_per_node: int
    gpu: str | None
    """kind of accelerator, for the records"""
    hardware: Gpu | None = None
    """what is known of it and of the nodes' network, for the search's predictions"""
    time_limit_s: int
    executor: str
    """slurm: agents are started by srun; local: as processes of this machine, one per simulated node, and it takes one
    run at a time"""
    scratch: str
    """node-local directory for logs and temporary files"""
    checkpoint_dir: str | None = None
    """the site's directory for checkpoints, which all nodes see"""
    compiled_dir: str = ""
    """the sweep's directory for compiled code"""
    container_prefix: tuple[str, ...] = ()
    """prefix of an agent's command, such as apptainer exec image.sif: the agent and its ranks run in there"""
    interface: str | None = None
    """the network interface for the leader and the ranks; None: by the host's name"""
    port_range: tuple[int, int] | None = None
    """first and last port for the leader and the ranks; None: 20000 and 32767"""
    srun: tuple[str, ...] = ()
    """further options of the sruns that start agents and that clean up after them"""
    torch_version: str | None = None
    """the site's torch version, by which the plan rejected candidates; None: not stated"""
    seed: int = 0
    strategy: str = "exhaustive"
    """which run comes next, and which are excluded"""
    stop_slow: str | float = "off"
    """auto, off, or the factor by which a run that has lost is slower than its cell's best"""
    budget: dict[str, int | float] = field(default_factory=dict)
    """limits of ``sweep.inputs.grid.BudgetLimits`` that are given"""
    max_runs: int | None = None
    same_nodes: bool = False
    """there are no other nodes: a retry may use the nodes where its run failed"""
    isolate: bool = False
    """a run of several nodes has the fabric to itself: concurrent runs must stay within one node"""
    domain_nodes: tuple[str, ...] = ()
    """the site's NVLink domains: a list of nodes each"""
    reject_split: bool = False
    """no run whose tp or ep groups the pilot's nodes cannot keep inside one domain"""
    preflight: str = "off"
    """which checks its nodes must pass before their first run: off, quick, node, perf"""
    limits: Limits

    def write(self, directory: Path) -> None:
        """Write it to the pilot's directory."""
        write_once(directory / FILE_NAME, msgspec.json.format(msgspec.json.encode(self), indent=1))

    @classmethod
    def read(cls, directory: Path) -> JobSpec:
        """Read that of a pilot's directory; of one without ``hardware``, it is what is known of its kind of GPU."""
        spec = msgspec.json.decode((directory / FILE_NAME).read_bytes(), type=cls)
        return replace(spec, hardware=spec.hardware or GPUS.get(spec.gpu or ""))
