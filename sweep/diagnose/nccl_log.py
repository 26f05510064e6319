"""Communication as reported by an ``NCCL_DEBUG=INFO`` log: a summary, and findings as text. Pure.

Line forms: NCCL 2.7 to 2.28 (src/init.cc, src/bootstrap.cc, src/transport/net_ib.cc, net_socket.cc, p2p.cc, shm.cc,
nvls.cc). The prefix is ``host:pid:tid [dev] NCCL INFO``; ``NCCL version`` has none.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

_NCCL_LINE = re.compile(r"NCCL (?:INFO|WARN)")
_PREFIX = re.compile(r"(\S+?):(\d+):\d+ \[-?\w+\] ")
_VERSION = re.compile(r"NCCL version (\d[\w.+-]{,60})")
_HCA = re.compile(r"\[\d+\](\S{1,64}?):\d+/(\w+)")
_CHANNEL = re.compile(r" via (NET/[\w-]+|P2P|SHM|DirectSHM|COLLNET|NVLS)(\S*)")
_CHANNELS = re.compile(r"\b(\d+) coll channels(?:.*?\b(\d+) nvls channels)?")
_NODES = re.compile(r"nNodes (\d+)")
_COMM = re.compile(r"comm (0x[0-9a-f]+) rank (\d+) n[rR]anks (\d+)")
_TIMINGS = re.compile(r"rank (\d+) nranks \d+ total (\d+\.\d+)(?:.*?bootstrap (\d+\.\d+))?")
_ENV = re.compile(r"(NCCL_\w+) set by environment to (.*?)\.?$")
_PEER_LEFT = re.compile(
    r"closed by remote peer|Socket recv failed|remote process exit|socketProgress|Connection reset", re.IGNORECASE
)
_ADVISORY = re.compile(r"MTU|[Pp]lugin|ignor|not supported|deprecat|P2P is disabled|mixed local Net device")
PREFIX_CHARS = 300
"""the prefix precedes NCCL's message within this: a host's name of 64, numbers, the file and line of a WARN"""
LINE_CHARS = 2000
"""characters of a line that are read: the patterns would take hours for megabytes without a blank"""


@dataclass(frozen=True, kw_only=True)
class NcclSummary:
    """One attempt's communication. None if the log does not show it."""

    version: str | None = None
    network: str | None = None
    """IB, Socket, AWS Libfabric, … as NCCL names it"""
    interface: str | None = None
    """the interface of the bootstrap"""
    hosts: int
    nodes: int | None = None
    hcas_per_host: Mapping[str, int] = field(default_factory=dict)
    transports: Mapping[str, int] = field(default_factory=dict)
    """channel connections by transport: P2P, SHM, NET/IB, NET/Socket, …"""
    gpudirect_rdma: bool | None = None
    nvls: bool | None = None
    coll_channels: tuple[int, ...] = ()
    """the distinct channel counts of communicators, ascending"""
    rings: bool = False
    trees: bool = False
    ranks: int | None = None
    """of the largest communicator"""
    init_missing: tuple[int, ...] = ()
    """ranks that started to set up a communicator and never reported completion"""
    init_s: float | None = None
    """longest set-up of a communicator"""
    bootstrap_s: float | None = None
    root_warning: str | None = None
    """the first WARN that is not about a lost peer"""
    environment: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Plain values for a record."""
        return dataclasses.asdict(self)


def summarize(lines: Iterable[str]) -> NcclSummary | None:
    """The summary of a log; None if NCCL printed nothing. Lines of other programs are skipped."""
    reader = _Reader()
    for line in lines:
        if "NCCL" in line:
            reader.read(line.rstrip("\n"))
    return reader.summary() if reader.spoke else None


@dataclass(frozen=True)
class _Line:
    text: str
    host: str
    pid: str


class _Reader:
    """Collects the facts in the lines."""

    def __init__(self) -> None:
        self.spoke = False
        self.values: dict[str, Any] = {}
        self.hosts: set[str] = set()
        self.hcas: dict[str, set[str]] = {}
        self.transports: Counter[str] = Counter()
        self.gdr: set[str] = set()
        self.channels: set[int] = set()
        self.started: dict[tuple[str, str, str], int] = {}
        self.warnings: list[str] = []
        self.environment: dict[str, str] = {}

    def read(self, line: str) -> None:
        version = _VERSION.search(line)
        if version:
            self.spoke = True
            self.values.setdefault("version", version.group(1))
        speaks = _NCCL_LINE.search(line)
        if speaks is None:
            return
        prefix = _PREFIX.search(line, max(0, speaks.start() - PREFIX_CHARS), speaks.start())
        if prefix is None:
            return
        self.spoke = True
        host, pid = prefix.group(1), prefix.group(2)
        self.hosts.add(host)
        line = line[prefix.start() : speaks.start() + LINE_CHARS]
        if "NCCL WARN" in line:
            self.warnings.append(line.strip())
            return
        for key, take in _TAKERS:
            if key in line:
                take(self, _Line(line, host, pid))
                return

    def bootstrap(self, line: _Line) -> None:
        self.values.setdefault(
            "interface", line.text.partition("Using ")[2].partition(":")[0].strip().removeprefix("[0]")
        )

    def network(self, line: _Line) -> None:
        self.values["network"] = line.text.partition("Using network ")[2].strip()

    def devices(self, line: _Line) -> None:
        self.hcas.setdefault(line.host, set()).update(name for name, _ in _HCA.findall(line.text.partition("; OOB")[0]))

    def channel(self, line: _Line) -> None:
        match = _CHANNEL.search(line.text)
        if match is None:
            return
        self.transports[match.group(1)] += 1
        if match.group(1).startswith("NET/") and match.group(1) != "NET/Socket":
            self.gdr.add("on" if "GDRDMA" in match.group(2) else "off")

    def rdma_off(self, _line: _Line) -> None:
        self.gdr.add("off")

    def rdma_on(self, _line: _Line) -> None:
        self.gdr.add("on")

    def channel_counts(self, line: _Line) -> None:
        match = _CHANNELS.search(line.text)
        if match:
            self.channels.add(int(match.group(1)))
            if match.group(2) is not None:
                self.values["nvls"] = bool(self.values.get("nvls")) or int(match.group(2)) > 0

    def nvls(self, line: _Line) -> None:
        if "is not available" in line.text or "not supported" in line.text:
            self.values["nvls"] = False
        elif "is available" in line.text:
            self.values.setdefault("nvls", True)

    def rings(self, _line: _Line) -> None:
        self.values["rings"] = True

    def trees(self, _line: _Line) -> None:
        self.values["trees"] = True

    def timings(self, line: _Line) -> None:
        match = _TIMINGS.search(line.text)
        if match:
            self.most("init_s", float(match.group(2)))
            if match.group(3):
                self.most("bootstrap_s", float(match.group(3)))

    def comm(self, line: _Line) -> None:
        nodes = _NODES.search(line.text)
        if nodes:
            self.most("nodes", int(nodes.group(1)))
        match = _COMM.search(line.text)
        if match is None:
            return
        self.most("ranks", int(match.group(3)))
        key = (line.host, line.pid, match.group(1))
        if "Init START" in line.text:
            self.started[key] = int(match.group(2))
        elif "Init COMPLETE" in line.text:
            self.started.pop(key, None)

    def setting(self, line: _Line) -> None:
        match = _ENV.search(line.text)
        if match:
            self.environment.setdefault(match.group(1), match.group(2).strip())

    def most(self, name: str, value: float) -> None:
        self.values[name] = max(value, self.values.get(name) or value)

    def summary(self) -> NcclSummary:
        gdr = "on" in self.gdr if self.gdr else None
        roots = [line for line in self.warnings if not _PEER_LEFT.search(line) and not _ADVISORY.search(line)]
        plain = NcclSummary(
            **self.values,
            hosts=len(self.hosts),
            hcas_per_host={host: len(names) for host, names in sorted(self.hcas.items())},
            transports=dict(sorted(self.transports.items())),
            gpudirect_rdma=gdr,
            coll_channels=tuple(sorted(self.channels)),
            init_missing=tuple(sorted(set(self.started.values()))),
            root_warning=next(iter([*roots, *self.warnings]), None),
            environment=self.environment,
        )
        return dataclasses.replace(plain, findings=tuple(_findings(plain)))


_TAKERS: tuple[tuple[str, Callable[[_Reader, _Line], None]], ...] = (
    ("Bootstrap : Using", _Reader.bootstrap),
    ("Bootstrap: Using", _Reader.bootstrap),
    ("Using network", _Reader.network),
    ("NET/IB : Using", _Reader.devices),
    (" via ", _Reader.channel),
    ("GPU Direct RDMA Disabled", _Reader.rdma_off),
    ("GPU Direct RDMA Enabled", _Reader.rdma_on),
    ("coll channels", _Reader.channel_counts),
    ("NVLS multicast", _Reader.nvls),
    ("Connected all rings", _Reader.rings),
    ("Connected all trees", _Reader.trees),
    ("Init timings", _Reader.timings),
    ("set by environment", _Reader.setting),
    ("comm 0x", _Reader.comm),
)
"""the first key in a line decides which reader gets it"""


def _findings(seen: NcclSummary) -> list[str]:
    several = (seen.nodes or seen.hosts) > 1
    return [text for text in (*_network_findings(seen, several), *_node_findings(seen), *_init_findings(seen)) if text]


def _network_findings(seen: NcclSummary, several: bool) -> Iterable[str]:
    if not several:
        return
    if seen.network == "Socket" or "NET/Socket" in seen.transports:
        where = f" on {seen.interface}" if seen.interface else ""
        yield (
            f"NCCL fell back to TCP sockets{where}: expect communication between nodes about 10 times slower. "
            "Check why no InfiniBand or EFA device was used (NCCL_IB_DISABLE, NCCL_NET, the network plugin, "
            "the container's devices)."
        )
    elif seen.gpudirect_rdma is False:
        yield (
            "GPUDirect RDMA is off: data between nodes goes through host memory. "
            "Load nvidia-peermem or use DMA-BUF, and check that GPU and HCA share a PCIe switch."
        )
    counts = set(seen.hcas_per_host.values())
    if len(counts) > 1:
        fewest = min(seen.hcas_per_host, key=lambda host: seen.hcas_per_host[host])
        yield (
            f"Nodes use different numbers of HCAs ({min(counts)} to {max(counts)}): {fewest} lacks some and slows all "
            "others."
        )


def _node_findings(seen: NcclSummary) -> Iterable[str]:
    if seen.transports.get("SHM", 0) > seen.transports.get("P2P", 0):
        yield (
            "GPUs of one node communicate through host shared memory, not NVLink or PCIe P2P: check PCIe ACS, IOMMU, "
            "NCCL_P2P_DISABLE or isolated containers."
        )
    if seen.nvls is False and "P2P" in seen.transports and seen.environment.get("NCCL_NVLS_ENABLE") != "0":
        yield "NVLink SHARP (NVLS) is not in use; on H100 with NVSwitch check the fabric manager."
    if len(seen.coll_channels) > 1 and seen.coll_channels[0] * 4 <= seen.coll_channels[-1]:
        yield (
            f"Communicators got from {seen.coll_channels[0]} to {seen.coll_channels[-1]} channels: "
            "those across nodes, or with few links, have little bandwidth."
        )


def _init_findings(seen: NcclSummary) -> Iterable[str]:
    if seen.init_missing:
        ranks = ", ".join(map(str, seen.init_missing[:16]))
        yield f"Communicator set-up never completed on rank {ranks}: these ranks, or one they wait for, hang in it."
    if seen.init_s is not None and seen.init_s > 10:
        part = f", of which bootstrap {seen.bootstrap_s:.1f} s" if seen.bootstrap_s is not None else ""
        yield f"Communicator set-up took {seen.init_s:.1f} s{part}: slow for every start."
    if seen.root_warning is not None:
        yield f"First warning: {seen.root_warning[:300]}"
    debug = [name for name in ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS") if "TRACE" in seen.environment.get(name, "")]
    if debug or seen.environment.get("NCCL_DEBUG_SUBSYS", "") == "ALL":
        yield "NCCL traces every call: its timings are not comparable."
