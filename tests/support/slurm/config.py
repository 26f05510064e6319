"""The texts of a one-machine cluster's configuration files, by the templates beside this file.

Written for Slurm 22.05 to 25.11 as Debian and Ubuntu build it (several slurmd on one host).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

MAX_NODES = 120
"""so that the ports of one cluster fit in one slot of PORTS_PER_CLUSTER"""
PORTS_PER_CLUSTER = 128


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The configured size of a cluster."""

    nodes: int = 8
    gpus_per_node: int = 2
    cpus_per_node: int = 8
    """configured, independent of the machine (config_overrides)"""
    memory_mb: int = 16000
    accounting: bool = True
    extra: str = ""
    """further lines of slurm.conf; a key named here replaces ours"""
    cpus_of: Mapping[str, int] = field(default_factory=dict)
    """nodes with another number of CPUs"""
    topology: str = ""
    """topology.conf, of a tree of switches or of blocks; without it there is no topology"""
    extra_slurmdbd: str = ""
    """further lines of slurmdbd.conf"""

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= MAX_NODES:
            raise ValueError(f"nodes must be 1 to {MAX_NODES}, not {self.nodes}")

    @property
    def node_names(self) -> list[str]:
        return [f"n{i}" for i in range(1, self.nodes + 1)]


@dataclass(frozen=True)
class Ports:
    """The ports of one cluster, counted from the first of its slot."""

    first: int

    @property
    def slurmctld(self) -> int:
        return self.first

    @property
    def slurmdbd(self) -> int:
        return self.first + 1

    @property
    def mariadb(self) -> int:
        return self.first + 2

    def slurmd(self, nodes: int) -> range:
        return range(self.first + 8, self.first + 8 + nodes)


def slurm_conf(shape: Shape, ports: Ports, state: Path, host: str) -> str:
    """slurm.conf. Its folder also holds gres.conf, cgroup.conf and slurmdbd.conf: Slurm searches its folder."""
    lines = _template("slurm.conf").format(ports=ports, state=state, host=host).splitlines()
    if shape.gpus_per_node:
        lines.append("GresTypes=gpu")
    if shape.topology:
        lines.append(f"TopologyPlugin=topology/{'block' if 'BlockName' in shape.topology else 'tree'}")
    lines.append(f"AccountingStorageType=accounting_storage/{'slurmdbd' if shape.accounting else 'none'}")
    if shape.accounting:
        lines += ["AccountingStorageHost=127.0.0.1", f"AccountingStoragePort={ports.slurmdbd}"]
    replaced = {key.lower() for key in re.findall(r"^\s*(\w+)\s*=", shape.extra, re.MULTILINE)}
    lines = [line for line in lines if line.partition("=")[0].lower() not in replaced]
    lines += [*_node_lines(shape, ports, host), _partition_line(shape), shape.extra.strip()]
    return "\n".join(lines) + "\n"


def _template(name: str) -> str:
    """What all clusters have in common of a file, with places for what is a cluster's own."""
    return Path(__file__).with_name(name).read_text()


def _node_lines(shape: Shape, ports: Ports, host: str) -> list[str]:
    gres = f" Gres=gpu:{shape.gpus_per_node}" if shape.gpus_per_node else ""
    return [
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port}"
        f" CPUs={shape.cpus_of.get(name, shape.cpus_per_node)} RealMemory={shape.memory_mb}{gres} State=UNKNOWN"
        for name, port in zip(shape.node_names, ports.slurmd(shape.nodes), strict=True)
    ]


def _partition_line(shape: Shape) -> str:
    return f"PartitionName=main Nodes=n[1-{shape.nodes}] Default=YES MaxTime=INFINITE State=UP"


def gres_conf(shape: Shape, devices: Path) -> str:
    """gres.conf. Without File= the nodes come up INVAL (seen with 22.05)."""
    if not shape.gpus_per_node:
        return ""
    last = shape.gpus_per_node - 1
    files = f"{devices}/gpu[0-{last}]" if last else f"{devices}/gpu0"
    return f"NodeName=n[1-{shape.nodes}] Name=gpu File={files}\n"


def cgroup_conf(version: tuple[int, int]) -> str:
    """cgroup.conf: no cgroup is used. 22.05 has no "disabled", later ones no CgroupAutomount."""
    if version >= (23, 2):
        return "CgroupPlugin=disabled\n"
    return "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n"


def slurmdbd_conf(shape: Shape, ports: Ports, state: Path, host: str) -> str:
    """slurmdbd.conf; slurmdbd refuses it unless its mode is 600."""
    return _template("slurmdbd.conf").format(ports=ports, state=state, host=host) + shape.extra_slurmdbd
