"""Detects facts about this machine or cluster: by Slurm's clients, nvidia-smi and the CPU count.

Parsers are pure, text in and values out; only ``answer`` runs anything. What is not detected, the user states.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from bench_workloads.checks.reading import answer
from sweep.errors import Mistake, SweepError
from sweep.physics.hardware import GPUS, gpu_kind

TIMEOUT_S = 20.0
LONGEST_PILOT_S = 4 * 3600
SINFO = ("sinfo", "-h", "-o", "%P|%a|%l|%D|%c|%G")
USUAL_GPUS_PER_NODE, RACK_GPUS_PER_NODE = 8, 4
"""of a node that is not seen: HGX boards have 8, a compute tray of a GB200 or GB300 NVL72 has 4"""
CPU_RANKS = 8
"""most ranks per node on a machine without GPUs, unless the site states otherwise"""


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """Nodes of one kind in one partition, from one line of sinfo."""

    partition: str
    default: bool
    up: bool
    time_limit_s: int | None
    """None: infinite"""
    nodes: int
    cpus: int
    gpus: int
    gpu_type: str
    """the type that the gres states; often empty"""


def slurm_answers() -> bool:
    """Whether sbatch is installed and its controller is up."""
    return shutil.which("sbatch") is not None and "is UP" in answer(["scontrol", "ping"], TIMEOUT_S)


def detect_site(executor: str | None, gpu: str | None = None) -> Mapping[str, object]:
    """Keys of a site file, as far as they can be detected. ``gpu``: its kind, if the user states it.

    A kind that is stated where neither Slurm nor a GPU is seen is that of a cluster elsewhere. Raises SweepError if
    what is known is not enough to start.
    """
    return _cluster_facts(gpu) if executor == "slurm" else _machine_facts(gpu, elsewhere=executor is None)


def other_partitions(chosen: object) -> list[NodeGroup]:
    """The groups of nodes that are up in partitions other than the chosen one; none if sinfo does not answer."""
    groups = parse_sinfo(answer(SINFO, TIMEOUT_S))
    return [group for group in groups if group.up and group.nodes and group.partition != chosen]


def _cluster_facts(gpu: str | None) -> dict[str, object]:
    listing = answer(SINFO, TIMEOUT_S)
    if not listing and gpu is not None:
        return _elsewhere(gpu)
    if not listing:
        fact = "sinfo does not answer, so nothing is known about the cluster"
        remedy = "`sweep init --gpu KIND` writes a site for one elsewhere; or launch with --executor local"
        raise SweepError(Mistake(fact, path="site", remedy=remedy))
    group = widest_group(parse_sinfo(listing))
    if group is None:
        raise SweepError(Mistake("sinfo lists no partition that is up", path="site", remedy="write a site file"))
    config = parse_config(answer(["scontrol", "show", "config"], TIMEOUT_S))
    group = replace(group, gpu_type=gpu or group.gpu_type)
    return cluster_site(group, config, _gpu_names())


def cluster_site(group: NodeGroup, config: Mapping[str, str], local_gpus: Sequence[str]) -> dict[str, object]:
    """Site keys for one group of nodes. The GPU's kind comes from the gres, else from this machine's own GPUs."""
    kind = "cpu" if not group.gpus else gpu_kind([group.gpu_type, *local_gpus])
    if kind is None:
        fact = f"partition {group.partition} has {group.gpus} GPUs per node, but their kind cannot be detected"
        known = ", ".join(name for name in GPUS if name != "cpu")
        remedy = f"write it in a site file: one of {known}; `sweep init --gpu KIND` makes one"
        raise SweepError(Mistake(fact, path="site.gpu", remedy=remedy))
    name = re.sub(r"[^A-Za-z0-9._+-]+", "-", config.get("ClusterName", "")).strip("-._+")[:64]
    return {
        "name": name or "cluster",
        "partition": group.partition,
        "gpu": kind,
        "gpus_per_node": group.gpus or min(group.cpus, CPU_RANKS),
        "max_nodes": group.nodes,
        "pilot_time": min(group.time_limit_s or LONGEST_PILOT_S, LONGEST_PILOT_S),
    }


def _elsewhere(gpu: str) -> dict[str, object]:
    per_node = RACK_GPUS_PER_NODE if GPUS[gpu].link_domain else USUAL_GPUS_PER_NODE
    return {"name": "cluster", "gpu": gpu, "gpus_per_node": per_node, "pilot_time": LONGEST_PILOT_S}


def _machine_facts(gpu: str | None, *, elsewhere: bool) -> dict[str, object]:
    gpus = _gpu_names()
    if not gpus and gpu not in (None, "cpu"):
        if elsewhere:
            return _elsewhere(str(gpu))
        raise SweepError(Mistake(f"this machine has no {gpu}", path="--gpu", remedy="omit --executor local or --gpu"))
    kind = (gpu or gpu_kind(gpus)) if gpus else None
    if kind is None:
        return {"name": "local", "gpu": "cpu", "gpus_per_node": min(os.cpu_count() or 1, CPU_RANKS)}
    return {
        "name": "local",
        "gpu": kind,
        "gpus_per_node": len(gpus),
        "max_nodes": 1,
        "max_local_ranks": len(gpus),
    }


def parse_sinfo(text: str) -> list[NodeGroup]:
    """Lines of SINFO."""
    groups = []
    for line in text.splitlines():
        fields = line.strip().split("|")
        if len(fields) == 6:
            partition, up, limit, nodes, cpus, gres = fields
            gpus, gpu_type = parse_gres(gres)
            group = NodeGroup(
                partition=partition.rstrip("*"),
                default=partition.endswith("*"),
                up=up == "up",
                time_limit_s=parse_time(limit),
                nodes=_whole(nodes),
                cpus=_whole(cpus),
                gpus=gpus,
                gpu_type=gpu_type,
            )
            groups.append(group)
    return groups


def widest_group(groups: Iterable[NodeGroup]) -> NodeGroup | None:
    """The nodes to use by default: in the default partition (else any), the largest group with GPUs."""
    up = [group for group in groups if group.up and group.nodes]
    choice = [group for group in up if group.default] or up
    return max(choice, key=lambda group: (group.gpus * group.nodes, group.nodes), default=None)


def parse_gres(text: str) -> tuple[int, str]:
    """(GPUs per node, their type or nothing) from a gres text such as ``gpu:h100:8(S:0-1),shard:8``."""
    counts: dict[str, int] = {}
    for part in re.sub(r"\([^()]*\)", "", text).split(","):
        match = re.fullmatch(r"gpu(?::([^:]+?))??(?::(\d+))?", part.strip())
        if match:
            counts[match[1] or ""] = counts.get(match[1] or "", 0) + int(match[2] or 1)
    # Nodes with mixed types: the most numerous one is used.
    kind = max(counts, key=lambda name: counts[name], default="")
    return sum(counts.values()), kind


def parse_time(text: str) -> int | None:
    """Seconds of Slurm's [days-][hours:]minutes:seconds; None for infinite or nothing."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def parse_config(text: str) -> dict[str, str]:
    """Key -> value of ``scontrol show config``; "(null)" is omitted."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, value in pairs if value.strip() != "(null)"}


def _gpu_names() -> list[str]:
    """The name of each GPU here."""
    text = answer(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], TIMEOUT_S)
    return [line.strip() for line in text.splitlines() if line.strip()]


def _whole(text: str) -> int:
    """Sinfo writes 8+ where the nodes of a line differ."""
    match = re.match(r"\d+", text)
    return int(match[0]) if match else 0
