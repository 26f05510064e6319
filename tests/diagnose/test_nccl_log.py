"""NCCL logs: the summary and the findings. Lines as NCCL 2.14 to 2.27 prints them."""

import time
from collections.abc import Iterable

import pytest

from sweep.diagnose.nccl_log import NcclSummary, summarize

INFINIBAND = """\
NCCL version 2.21.5+cuda12.4
n1:10:10 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>
n1:10:10 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>
n2:20:20 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.2<0>
n1:10:30 [0] NCCL INFO Using network IB
n1:10:30 [0] NCCL INFO ncclCommInitRank comm 0xaa rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 1 commId 0x1 - Init START
n2:20:40 [0] NCCL INFO ncclCommInitRank comm 0xbb rank 8 nranks 16 cudaDev 0 nvmlDev 0 busId 1 commId 0x1 - Init START
n1:10:30 [0] NCCL INFO comm 0xaa rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0
n1:10:30 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA
n1:10:30 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
n1:10:30 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 1
n1:10:30 [0] NCCL INFO Connected all trees
n1:10:30 [0] NCCL INFO 16 coll channels, 16 collnet channels, 16 nvls channels, 16 p2p channels
n1:10:30 [0] NCCL INFO ncclCommInitRank comm 0xaa rank 0 nranks 16 cudaDev 0 busId 1 commId 0x1 - Init COMPLETE
n1:10:30 [0] NCCL INFO Init timings - ncclCommInitRank: rank 0 nranks 16 total 1.99 (kernels 0.27, bootstrap 0.87)
n1:10:30 [0] NCCL INFO NCCL_IB_TIMEOUT set by environment to 22.
n2:20:40 [0] NCCL INFO ncclCommInitRank comm 0xbb rank 8 nranks 16 cudaDev 0 busId 1 commId 0x1 - Init COMPLETE
"""

SOCKETS = """\
n1:10:10 [0] NCCL INFO Bootstrap: Using ens3:10.0.0.1<0>
n1:10:10 [0] NCCL INFO NET/IB : No device found.
n1:10:10 [0] NCCL INFO NET/Socket : Using [0]ens3:10.0.0.1<0>
n1:10:10 [0] NCCL INFO Using network Socket
n2:11:11 [0] NCCL INFO Using network Socket
n1:10:12 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0
n1:10:12 [0] NCCL INFO Channel 00/0 : 0[0] -> 2[1] via SHM/direct/direct
n2:11:13 [0] NCCL INFO ncclCommInitRank comm 0xcc rank 1 nranks 2 cudaDev 0 busId 1 commId 0x9 - Init START
"""


def read(lines: Iterable[str]) -> NcclSummary:
    seen = summarize(lines)
    assert seen is not None
    return seen


def of_process(lines: Iterable[str]) -> NcclSummary:
    return read(f"n1:1:1 [0] NCCL INFO {line}" for line in lines)


def test_infiniband_with_gpudirect_is_read_and_finds_nothing() -> None:
    seen = read(INFINIBAND.splitlines())
    assert (seen.version, seen.network, seen.interface) == ("2.21.5+cuda12.4", "IB", "eth0")
    assert (seen.hosts, seen.nodes) == (2, 2)
    assert seen.hcas_per_host == {"n1": 2, "n2": 2}
    assert seen.transports == {"NET/IB": 1, "P2P": 1}
    assert seen.gpudirect_rdma is True
    assert seen.nvls is True
    assert seen.coll_channels == (16,)
    assert (seen.init_s, seen.bootstrap_s) == (1.99, 0.87)
    assert seen.init_missing == ()
    assert seen.environment == {"NCCL_IB_TIMEOUT": "22"}
    assert seen.findings == ()


def test_fall_back_to_sockets_is_reported_with_its_interface() -> None:
    seen = read(SOCKETS.splitlines())
    text = "\n".join(seen.findings)
    assert "TCP sockets on ens3" in text
    assert "10 times slower" in text
    assert "never completed on rank 1" in text
    for line in ("Using network Socket", "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0"):
        assert "TCP sockets" in findings("comm 0xaa rank 0 nRanks 16 nNodes 2 localRanks 8", line)


def test_a_host_with_fewer_adapters_than_the_others_is_named() -> None:
    seen = read([
        "n1:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB ; OOB eth0:1<0>",
        "n2:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB ; OOB eth0:1<0>",
    ])  # fmt: skip
    assert "n2 lacks some" in seen.findings[0]


def test_root_warning_is_the_first_that_is_not_a_lost_peer() -> None:
    lines = [
        "n1:1:1 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer n2<57557>",
        "n2:5:5 [3] transport/net_ib.cc:180 NCCL WARN NET/IB : mlx5_3:1 async fatal event on QP",
        "n2:5:5 [3] proxy.cc:1143 NCCL WARN Socket recv failed while polling",
    ]
    seen = read(lines)
    assert seen.root_warning is not None
    assert "async fatal event" in seen.root_warning


def test_other_programs_are_ignored() -> None:
    assert summarize(["step 1 loss 2.0", "export NCCL_DEBUG=INFO"]) is None


MIB = 1 << 20


@pytest.mark.parametrize(
    "line",
    [
        "x" * MIB + "NCCL",
        "x:1" * (MIB // 3) + " NCCL INFO comm",
        "1" * MIB + " coll channels NCCL INFO",
        "n1:1:1 [0] NCCL INFO " + "1" * MIB + " coll channels",
        "n1:1:1 [0] NCCL INFO NET/IB : Using " + "[0]a" * (MIB // 4),
        "n1:1:1 [0] NCCL INFO comm 0x" + "a" * MIB,
        "NCCL version 1" + "." * MIB,
        "NCCL INFO" * (MIB // 9),
    ],
    ids=range(8),
)
def test_a_long_unbroken_line_is_read_at_once(line: str) -> None:
    """The leader's loop waits meanwhile: an agent without its heartbeat for 20 s ends the job."""
    began = time.thread_time()  # of the processor: load does not stretch it
    seen = summarize([line])
    assert time.thread_time() - began < 1.0
    assert len(str(seen)) < 10_000, "the stored part goes into the record"


def test_text_before_a_line_of_nccl_is_skipped() -> None:
    """A progress bar that ends in a carriage return, on NCCL's line."""
    seen = read(["step: 100%|" + "█" * 5000 + "\rn1:10:12 [3] NCCL INFO Using network IB"])
    assert (seen.network, seen.hosts) == ("IB", 1)


def test_a_long_warning_is_truncated() -> None:
    seen = read(["n1:1:1 [0] misc/socket.cc:49 NCCL WARN " + "word " * 10_000])
    assert seen.root_warning is not None
    assert seen.root_warning.startswith("n1:1:1 [0] misc/socket.cc:49 NCCL WARN word")
    assert len(seen.root_warning) < 3000


@pytest.mark.parametrize("lines", [
    ["Using network Socket", "Channel 00 : 0[0] -> 1[1] via P2P/IPC"],  # sockets on one node
    ["Bootstrap : Using eth0:10.0.0.1<0>"],  # it ends before the first channel
    ["0 coll channels, 0 collnet channels, 0 nvls channels, 0 p2p channels"],  # one communicator alone
])  # fmt: skip
def test_what_says_nothing_of_speed_is_no_finding(lines: list[str]) -> None:
    assert of_process(lines).findings == ()


def findings(*lines: str) -> str:
    return "\n".join(of_process(lines).findings)


TIMED = "Init timings - ncclCommInitRank: rank 0 nranks 16 total {} (kernels 0.27, bootstrap 9.87)"
SLOW, FEWER = "of which bootstrap 9.9 s: slow for every start", "Communicators got from {} to 16 channels"


@pytest.mark.parametrize(("lines", "words", "found"), [
    *((["Channel 00 : 0[0] -> 1[1] via SHM/direct"] * shared + ["Channel 00 : 0[0] -> 1[1] via P2P/IPC"] * direct,
       "host shared memory", found) for shared, direct, found in ((2, 1, True), (1, 1, False), (1, 2, False),
                                                                 (1, 0, True))),
    *(([f"{count} coll channels, 0 collnet channels" for count in (16, fewest)], FEWER.format(fewest), found)
      for fewest, found in ((4, True), (5, False))),
    *(([TIMED.format(total)], SLOW, found) for total, found in (("10.00", False), ("10.01", True))),
    *(([f"{name} set by environment to {value}."], "traces every call", found) for name, value, found in (
        ("NCCL_DEBUG", "TRACE", True), ("NCCL_DEBUG", "INFO", False), ("NCCL_DEBUG_SUBSYS", "ALL", True),
        ("NCCL_DEBUG_SUBSYS", "INIT,TRACE", True), ("NCCL_DEBUG_SUBSYS", "INIT", False), ("NCCL_ALGO", "TRACE", False),
    )),
])  # fmt: skip
def test_where_a_finding_begins(lines: list[str], words: str, found: bool) -> None:
    """More connections through the host than direct ones; a quarter of others' channels; 10 s; any trace of calls."""
    assert (words in findings(*lines)) is found


def test_a_set_up_whose_bootstrap_was_not_timed_is_given_without_it() -> None:
    """Where the line has the whole alone."""
    line = "n1:1:1 [0] NCCL INFO Init timings - ncclCommInitRank: rank 0 nranks 16 total 28.31 (kernels 0.27)"
    seen = read([line])
    assert (seen.init_s, seen.bootstrap_s) == (28.31, None)
    assert seen.findings == ("Communicator set-up took 28.3 s: slow for every start.",)


def test_the_longest_set_up_and_the_largest_communicator_count() -> None:
    timed = [f"Init timings - x: rank 0 nranks 2 total {t} (kernels 0.1, bootstrap {t})" for t in ("3.0", "5.0", "4.0")]
    sized = [f"comm 0xa{n} rank 0 nRanks {n} nNodes {n // 2} localRanks 2" for n in (4, 8, 2)]
    seen = of_process((*timed, *sized))
    assert (seen.init_s, seen.bootstrap_s, seen.nodes) == (5.0, 5.0, 4)


@pytest.mark.parametrize(("first", "second", "state", "found"), [
    ("is available on dev 0", "is available on dev 1", True, False),
    ("is available on dev 0", "is not available on dev 1", False, True),
    ("is not available on dev 0", "is available on dev 1", False, True),
])  # fmt: skip
def test_multicast_is_in_use_where_every_gpu_has_it(first: str, second: str, state: bool, found: bool) -> None:
    lines = [f"NVLS multicast support {first}", f"NVLS multicast support {second}", "Channel 00 : 0 -> 1 via P2P/IPC"]
    seen = of_process(lines)
    assert seen.nvls is state
    assert ("NVLS" in findings(*lines)) is found
    assert "NVLS" not in findings(*lines, "NCCL_NVLS_ENABLE set by environment to 0.")
    assert "NVLS" not in findings(*lines[:2]), "without a direct link it is not expected"


def test_gpudirect_is_off_only_where_no_connection_between_nodes_has_it() -> None:
    sized = "comm 0xaa rank 0 nRanks 16 nNodes 2 localRanks 8"
    off, on = ("Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0" + more for more in ("", "/GDRDMA"))
    assert "GPUDirect RDMA is off" in findings(sized, off)
    assert "GPUDirect RDMA is off" not in findings(sized, off, on)
    assert "GPUDirect RDMA is off" not in findings(sized)
    off, on = (f"GPU Direct RDMA {state} for HCA 0" for state in ("Disabled", "Enabled"))
    assert "GPUDirect RDMA is off" in findings(sized, off)
    for lines in ([on], [off, on], [on, off]):
        assert of_process([sized, *lines]).gpudirect_rdma is True
    for via in ("P2P/IPC", "SHM/direct/direct", "NET/Socket/0"):
        assert of_process([f"Channel 00 : 0[0] -> 1[1] via {via}"]).gpudirect_rdma is None, "no channel could use it"


def test_processes_of_a_host_whose_communicators_are_at_one_address_are_told_apart() -> None:
    begun = "n1:{}:7 [0] NCCL INFO ncclCommInitRank comm 0xaa rank {} nranks 2 cudaDev 0 busId 1 commId 0x1 - Init {}"
    seen = read(begun.format(*of) for of in ((10, 0, "START"), (11, 1, "START"), (10, 0, "COMPLETE")))
    assert seen.init_missing == (1,)


def test_at_most_sixteen_ranks_without_a_communicator_are_named() -> None:
    lines = [f"ncclCommInitRank comm 0x{n:02x} rank {n} nranks 32 cudaDev 0 - Init START" for n in range(20)]
    assert "never completed on rank 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15:" in findings(*lines)


@pytest.mark.parametrize(
    ("counts", "state"), [((0,), False), ((16,), True), ((0, 16), True), ((16, 0), True), ((), None)]
)
def test_channels_with_multicast_show_that_it_is_in_use(counts: tuple[int, ...], state: bool | None) -> None:
    lines = ["8 coll channels, 0 collnet channels", *(f"8 coll channels, 0 collnet, {n} nvls channels" for n in counts)]
    seen = of_process(lines)
    assert seen.nvls is state
    assert seen.coll_channels == (8,)
