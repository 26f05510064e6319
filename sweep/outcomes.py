"""How an attempt ended: one enum everywhere, in records, policy, diagnosis and figures."""

from __future__ import annotations

from enum import Enum


class Outcome(str, Enum):
    """The end of an attempt. Users read the values and scripts depend on them."""

    OK = "ok"
    OOM_CUDA = "oom_cuda"
    OOM_HOST = "oom_host"
    HANG = "hang"
    NCCL_TIMEOUT = "nccl_timeout"
    NCCL_ERROR = "nccl_error"
    CUDA_ERROR = "cuda_error"
    XID_HARDWARE = "xid_hardware"
    NODE_FAIL = "node_fail"
    NETWORK = "network"
    TIME_LIMIT = "time_limit"
    IMPORT_ERROR = "import_error"
    CONFIG_ERROR = "config_error"
    CONFIG_MISMATCH = "config_mismatch"
    PORT_IN_USE = "port_in_use"
    DISK_FULL = "disk_full"
    NAN_LOSS = "nan_loss"
    PYTHON_EXCEPTION = "python_exception"
    PREEMPTED = "preempted"
    SEGFAULT = "segfault"
    CANCELLED = "cancelled"
    LOST = "lost"
    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return self.value


BY_A_PART = frozenset(
    (
        *(Outcome.HANG, Outcome.NCCL_TIMEOUT, Outcome.NCCL_ERROR, Outcome.CUDA_ERROR),
        *(Outcome.XID_HARDWARE, Outcome.NODE_FAIL, Outcome.NETWORK),
    )
)
"""outcomes that a link, a switch or a node may cause"""
NO_FAILURE = "no_failure"
"""The diagnosis of a healthy log. It is not an outcome of an attempt."""
