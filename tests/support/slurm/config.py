"""The texts of a one-machine cluster's configuration files. Pure: values in, text out.

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
    settings = {
        "ClusterName": f"sweep{ports.first}",
        "SlurmctldHost": f"{host}(127.0.0.1)",
        "SlurmctldPort": str(ports.slurmctld),
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "AuthType": "auth/munge",
        "StateSaveLocation": f"{state}/ctld",
        "SlurmdSpoolDir": f"{state}/spool/%n",
        "SlurmctldPidFile": f"{state}/run/slurmctld.pid",
        "SlurmdPidFile": f"{state}/run/slurmd.%n.pid",
        "SlurmctldLogFile": f"{state}/log/slurmctld.log",
        "SlurmdLogFile": f"{state}/log/slurmd.%n.log",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "SwitchType": "switch/none",
        "MpiDefault": "none",
        "MailProg": "/bin/true",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        "SlurmdParameters": "config_overrides",
        "SchedulerParameters": "sched_interval=1,bf_interval=1,batch_sched_delay=0,defer_batch",
        "ReturnToService": "2",
        "SlurmdTimeout": "20",
        "KillWait": "5",
        "MinJobAge": "60",
        "MaxArraySize": "10001",
        "AccountingStorageType": "accounting_storage/none",
    }
    if shape.gpus_per_node:
        settings["GresTypes"] = "gpu"
    if shape.topology:
        settings["TopologyPlugin"] = f"topology/{'block' if 'BlockName' in shape.topology else 'tree'}"
    if shape.accounting:
        settings["AccountingStorageType"] = "accounting_storage/slurmdbd"
        settings["AccountingStorageHost"] = "127.0.0.1"
        settings["AccountingStoragePort"] = str(ports.slurmdbd)
    replaced = {key.lower() for key in re.findall(r"^\s*(\w+)\s*=", shape.extra, re.MULTILINE)}
    lines = [f"{key}={value}" for key, value in settings.items() if key.lower() not in replaced]
    lines += [*_node_lines(shape, ports, host), _partition_line(shape), shape.extra.strip()]
    return "\n".join(lines) + "\n"


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
    settings = {
        "AuthType": "auth/munge",
        "DbdHost": host,
        "DbdAddr": "127.0.0.1",
        "DbdPort": ports.slurmdbd,
        "SlurmUser": "root",
        "LogFile": f"{state}/log/slurmdbd.log",
        "PidFile": f"{state}/run/slurmdbd.pid",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "127.0.0.1",
        "StoragePort": ports.mariadb,
        "StorageUser": "slurm",
        "StoragePass": "slurm",
        "StorageLoc": "slurm_acct",
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items()) + shape.extra_slurmdbd
