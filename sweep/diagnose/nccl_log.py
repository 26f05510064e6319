"""Communication as reported by an ``NCCL_DEBUG=INFO`` log: a summary, and findings as text. Pure.

Line forms: NCCL 2.7 to 2.28 (src/init.cc, src/bootstrap.cc, src/transport/net_ib.cc, net_socket.cc, p2p.cc, shm.cc,
nvls.cc). The prefix is ``host:pid:tid [dev] NCCL INFO``; ``NCCL version`` has none.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_NCCL_LINE = re.compile(r"NCCL (?:INFO|WARN)")
_PREFIX = re.compile(r"(?<![^\s:])([^\s:]{1,255}):(\d{1,9}):\d{1,9} \[-?\w{1,20}\] ")
_VERSION = re.compile(r"NCCL version (?P<version>\d[\w.+-]{,60})")
_HCA = re.compile(r"\[\d{1,9}\](\S{1,64}?):\d{1,9}/\w")
_FACTS = {
    "Bootstrap": re.compile(r"Bootstrap ?: Using (?:\[0\])?(?P<interface>[^:]*)"),
    "Using network": re.compile(r"Using network (?P<network>.*)"),
    "NET/IB : Using": re.compile(r"Using (?P<hcas>[^;]*)"),
    " via ": re.compile(r" via (?P<transport>NET/[\w-]+|P2P|SHM|DirectSHM|COLLNET|NVLS)(?P<details>\S*)"),
    "GPU Direct RDMA": re.compile(r"RDMA (?P<rdma>Disabled|Enabled)"),
    "coll channels": re.compile(
        r"\b(?P<channels>\d{1,9}) coll channels(?:.*?\b(?P<nvls_channels>\d{1,9}) nvls channels)?"
    ),
    "NVLS multicast": re.compile(r"(?P<nvls>is not available|not supported|is available)"),
    "Init timings": re.compile(
        r"rank \d{1,9} nranks \d{1,9} total (?P<init_s>\d{1,9}\.\d{1,9})\b"
        r"(?:.*?bootstrap (?P<bootstrap_s>\d{1,9}\.\d{1,9})\b)?"
    ),
    "set by environment": re.compile(r"\b(?P<variable>NCCL_\w{1,80}) set by environment to (?P<setting>.*?)\.?$"),
    "comm 0x": re.compile(
        r"(?P<comm>0x[0-9a-f]{1,16}) rank (?P<rank>\d{1,9}) n[rR]anks \d{1,9}\b"
        r"(?: nNodes (?P<nodes>\d{1,9})\b)?(?:.*? - Init (?P<init>START|COMPLETE))?"
    ),
}
"""a text of a line -> what the line states; the first text that a line holds decides"""
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
    init_missing: tuple[int, ...] = ()
    """ranks that started to set up a communicator and never reported completion"""
    init_s: float | None = None
    """longest set-up of a communicator"""
    bootstrap_s: float | None = None
    root_warning: str | None = None
    """the first WARN that is not about a lost peer"""
    environment: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[str, ...] = ()


def summarize(lines: Iterable[str]) -> NcclSummary | None:
    """The summary of a log; None if NCCL printed nothing. Lines of other programs are skipped."""
    log = _Log()
    for line in lines:
        if "NCCL" in line:
            log.read(line.rstrip("\n"))
    return log.summary() if log.hosts or log.stated["version"] else None


class _Log:
    """Collects the facts in the lines."""

    def __init__(self) -> None:
        self.stated: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """name of a fact -> each value that a line states, in the order of their first lines -> number of lines"""
        self.hosts: set[str] = set()
        self.hcas: defaultdict[str, set[str]] = defaultdict(set)
        self.rdma: set[bool] = set()
        self.started: dict[tuple[str, str, str], int] = {}
        self.warnings: list[str] = []
        self.environment: dict[str, str] = {}

    def read(self, line: str) -> None:
        self._state(_VERSION.search(line))
        speaks = _NCCL_LINE.search(line)
        if speaks is None:
            return
        prefix = _PREFIX.search(line, max(0, speaks.start() - PREFIX_CHARS), speaks.start())
        if prefix is None:
            return
        self.hosts.add(prefix[1])
        line = line[prefix.start() : speaks.start() + LINE_CHARS]
        if "NCCL WARN" in line:
            self.warnings.append(line.strip())
            return
        pattern = next((pattern for text, pattern in _FACTS.items() if text in line), None)
        if pattern is not None and (match := pattern.search(line)):
            self._state(match)
            self._relate(prefix[1], prefix[2], match.groupdict())

    def _state(self, match: re.Match[str] | None) -> None:
        for name, value in match.groupdict().items() if match else ():
            if value is not None:
                self.stated[name][value.strip()] += 1

    def _relate(self, host: str, pid: str, fact: Mapping[str, str | None]) -> None:
        """What several values of a line, or the same of several lines, mean together."""
        self.hcas[host].update(_HCA.findall(fact.get("hcas") or ""))
        if rdma := fact.get("rdma"):
            self.rdma.add(rdma == "Enabled")
        if (transport := fact.get("transport") or "").startswith("NET/") and transport != "NET/Socket":
            self.rdma.add("GDRDMA" in str(fact["details"]))
        if variable := fact.get("variable"):
            self.environment.setdefault(variable, str(fact["setting"]).strip())
        communicator = (host, pid, str(fact.get("comm")))
        if fact.get("init") == "START":
            self.started[communicator] = int(str(fact["rank"]))
        elif fact.get("init"):
            self.started.pop(communicator, None)

    def summary(self) -> NcclSummary:
        stated = self.stated
        roots = [line for line in self.warnings if not _PEER_LEFT.search(line) and not _ADVISORY.search(line)]
        # NVLS is in use where a communicator has channels of it, else where every GPU states that it is available.
        channels, availability = stated["nvls_channels"], stated["nvls"]
        nvls = availability.keys() == {"is available"} if channels or availability else None
        plain = NcclSummary(
            version=next(iter(stated["version"]), None),
            network=next(reversed(stated["network"]), None),
            interface=next(iter(stated["interface"]), None),
            hosts=len(self.hosts),
            nodes=max(map(int, stated["nodes"]), default=None),
            hcas_per_host={host: len(names) for host, names in sorted(self.hcas.items()) if names},
            transports=dict(sorted(stated["transport"].items())),
            gpudirect_rdma=any(self.rdma) if self.rdma else None,
            nvls=True if any(map(int, channels)) else nvls,
            coll_channels=tuple(sorted(map(int, stated["channels"]))),
            init_missing=tuple(sorted(set(self.started.values()))),
            init_s=max(map(float, stated["init_s"]), default=None),
            bootstrap_s=max(map(float, stated["bootstrap_s"]), default=None),
            root_warning=next(iter([*roots, *self.warnings]), None),
            environment=self.environment,
        )
        return dataclasses.replace(plain, findings=tuple(_findings(plain)))


def _network_findings(seen: NcclSummary) -> Iterable[str]:
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


def _findings(seen: NcclSummary) -> Iterable[str]:
    if (seen.nodes or seen.hosts) > 1:
        yield from _network_findings(seen)
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
