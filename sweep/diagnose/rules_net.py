"""Lines of NCCL, gloo and torch.distributed.

Sources: NCCL src/misc/socket.cc, transport/net_ib.cc, src/init.cc; PyTorch torch/csrc/distributed/c10d
(ProcessGroupNCCL.cpp, TCPStore.cpp, socket.cpp, NCCLUtils.hpp) and torch/distributed/elastic.
"""

from __future__ import annotations

from sweep.diagnose.model import LineRule, Weight, either, never_after, then
from sweep.outcomes import Outcome

_PEER = "Another process ended first: check the other ranks' logs for the earliest error."
_LINK = (
    "Check that the nodes reach each other on the chosen interface (NCCL_SOCKET_IFNAME, NCCL_IB_HCA), the "
    "fabric's ports and firewalls."
)
_STUCK = (
    "One rank did not join the collective: find the rank that lags (flight recorder, stacks), look for an earlier "
    "error there, for diverging control flow or for a slow node."
)

NET: tuple[LineRule, ...] = (
    LineRule(
        "port-in-use",
        Outcome.PORT_IN_USE,
        Weight.SUSPECT,
        r"EADDRINUSE|another process is utilizing it|address already in use|errno:? 98\b"
        r"|(?:port|socket)\W.{0,40} (?:is )?already in use(?!.{0,60}(?:trying|using another|instead))"
        r"|failed to listen on any local network address",
        advice="Another process holds the rendezvous port, perhaps one left over from an earlier run: clear it or "
        "take another MASTER_PORT.",
    ),
    LineRule(
        "duplicate-gpu",
        Outcome.CONFIG_ERROR,
        Weight.CAUSE,
        "duplicate gpu detected|multiple ranks are using the same gpu|using the same gpu",
        advice="Two ranks use one GPU: set the device from the local rank and start no more ranks than GPUs.",
    ),
    LineRule(
        "nccl-version-mismatch",
        Outcome.NCCL_ERROR,
        Weight.CAUSE,
        "mismatched nccl version",
        advice="Nodes load different NCCL libraries: use one environment everywhere.",
    ),
    LineRule(
        "nccl-info-abort",
        Outcome.UNKNOWN,
        Weight.SIGN,
        then("NCCL INFO ", "Abort COMPLETE|Connection closed by localRank"),
        advice=_PEER,
    ),
    # A lost peer: torch and NCCL report it in many ways, always on the surviving ranks.
    LineRule(
        "peer-gone",
        Outcome.NCCL_ERROR,
        Weight.CONSEQUENCE,
        then(
            r"NCCL|c10d|gloo|TCPStore|rank ?\d|socket|Rendezvous|peer|dist|torch",
            r"closed by (?:remote )?peer|connection closed|reset by peer"
            r"|broken pipe|remote process exit\w|aborted on rank|Socket recv failed|likely closed|shutdown or crash"
            r"|got error: (?!Socket Timeout|wait timeout)",
            "{0,200}",
        )
        + r"|ncclRemoteError|\"should dump\" flag|NCCL communicator was aborted"
        r"|connection to the C10d store has failed|RendezvousClosedError|JAX distributed service detected fatal errors"
        r"|Connection closed by remote peer|\b(?:ConnectionResetError|BrokenPipeError|ConnectionAbortedError)\b",
        advice=_PEER,
    ),
    LineRule(
        "collective-timeout",
        Outcome.NCCL_TIMEOUT,
        Weight.SUSPECT,
        then("monitoredBarrier", "failed|timed out|did not|reach")
        + r"|collective (?:operation )?timeout|before timing out"
        r"|Heartbeat monitor timed out|watchdog got stuck|failed to pass monitoredBarrier"
        r"|NCCL operations have failed or timed out|Timeout at collective"
        r"|(?:NCCL (?:watchdog )?|\bDeepEP .{0,60}\b)timeout\b(?! set| ?[=:]| \d)|ProcessGroupNCCL timed out",
        advice=_STUCK,
    ),
    LineRule(
        "rendezvous-timeout",
        Outcome.NCCL_TIMEOUT,
        Weight.SUSPECT,
        either(
            r"Timed out after \d+ seconds waiting|socket has timed out|Timed out initializing process group"
            r"|RendezvousTimeoutError|timed out waiting (?:for|on) .{0,40}(?:rank|barrier|worker|client)"
            r"|wait timeout after \d+ ?ms|Timed out waiting \d+ms for|DEADLINE_EXCEEDED.{0,80}(?:Barrier|GetKeyValue)",
            then(r"Dist\w{1,40}Error|RuntimeError|store|c10d", "Socket Timeout", "{0,400}"),
            then("gloo|c10d|TCPStore|barrier", "timed out", "{0,160}"),
        ),
        advice="Not every rank joined the rendezvous: look for ranks that failed to start, and check MASTER_ADDR, "
        "the port and that nodes reach each other.",
    ),
    # The network card pins buffers: what is short is the limit of locked memory, not the node's memory.
    LineRule(
        "ib-memlock",
        Outcome.NCCL_ERROR,
        Weight.CAUSE,
        then("ibv_(?:reg|create)_|fi_mr_reg", r"Cannot allocate memory|ENOMEM|-12\b", "{0,100}"),
        advice="The limit of locked memory is too low for RDMA: it must be unlimited in the job (ulimit -l; "
        "LimitMEMLOCK of slurmd, PropagateResourceLimitsExcept=MEMLOCK in slurm.conf, or the container's --ulimit).",
    ),
    LineRule(
        "ib-error",
        Outcome.NCCL_ERROR,
        Weight.SUSPECT,
        then(
            "NCCL WARN",
            either(then("NET/IB ?:", "completion|async"), "async fatal event", then("NET/OFI", "fail|error")),
            "{0,80}",
        )
        + r"|ibv_\w{1,40} failed"
        r"|communicator encountered a fatal error|NET/IBP? ?: ?Got (?:completion|async)|Transport retry count exceeded|"
        + then("nvshmem", "non-zero status|NULL value|initialize any transport|, exiting"),
        advice="The InfiniBand or EFA path failed: look at the named HCA and peer (ibstat, perfquery, switch), and "
        "run on other nodes. NVSHMEM (DeepEP) needs the driver's options for IBGDA, or another token dispatcher.",
    ),
    LineRule(
        "nccl-connect",
        Outcome.NCCL_ERROR,
        Weight.SUSPECT,
        either(
            then(
                "WARN",
                either(
                    then(r"connect\b", "fail|refused|route|returned|timed"),
                    then("Bootstrap", "fail|no "),
                    "No (?:usable |socket )?interface",
                ),
                "{0,80}",
            ),
            then("(?:socket(?:Start|Poll|Finalize)|ncclSocket)Connect", "fail|return|refused"),
            then(r"\[E\S{0,40} socket\.cpp", "connect"),
            then(r"c10d\] The client socket has failed to connect", "errno: 11[03]"),
            then("gloo", then("connect", "fail")),
            "no device found matching",
        ),
        advice=_LINK,
    ),
    LineRule(
        "nccl-error",
        Outcome.NCCL_ERROR,
        Weight.SUSPECT,
        r"NCCL (?:error|failure)\b(?!.{0,4}handling)|nccl(?:System|Internal|UnhandledCuda|InvalidUsage"
        r"|InvalidArgument)Error|ncclInvalid(?:Usage|Argument)\b|DistBackendError"
        r"|unhandled (?:system|cuda) error|ncclCommInitRank failed",
        advice="NCCL failed: run once with NCCL_DEBUG=INFO and look for the first WARN line. " + _LINK,
    ),
    LineRule(
        "nccl-warn",
        Outcome.NCCL_ERROR,
        Weight.CONSEQUENCE,
        never_after(
            "NCCL WARN ",
            r"MTU|Could not|NCCL_\w{1,60} (?:set|is)|GID|[Pp]lugin|ignor|fallback|not supported|Fabric"
            r"|topology|P2P is disabled|has no|version|kernel command line",
        )
        + r"|\bDist(?:Network|Store)Error\b|"
        + then("third_party/gloo|gloo::", "error|fail|exception|closed"),
        advice="Look for the earliest error, or WARN line of NCCL, on every rank; run once with NCCL_DEBUG=INFO.",
    ),
    # Reports of torchrun, DeepSpeed, MPI and Slurm about a process: the cause is in its own log.
    LineRule(
        "child-failed",
        Outcome.UNKNOWN,
        Weight.SIGN,
        either(
            r"ChildFailedError|ActorDiedError|Worker exit type: SYSTEM_ERROR|exitcode ?: ?-?[1-9]|local_rank \d+ FAILED"
            r"|Root Cause \(first|(?:closing|death) signal|returned non-zero exit status|return code = -?[1-9]"
            r"|ProcessRaisedException|Signal \d+ \(SIG\w+\) received|terminate called after|core dumped|SIGABRT"
            r"|Fatal Python error",
            r"mpirun\S{0,40} (?:noticed|detected) that|Primary job +terminated normally, but|BAD TERMINATION OF ONE"
            r"|MPI_ABORT was invoked|daemon has unexpectedly failed",
            then("srun: error: ", then("task", "Exited with exit code|Terminated|Killed|Aborted|Broken pipe")),
            r"DUE TO TASK FAILURE|FAILED \(non-zero exit code|Job step aborted",
            then("CANCELLED AT ", " DUE TO"),
        ),
        advice="This reports that a process failed, not why: look for the first error in that process's own log.",
    ),
)
