"""The table of all rules, in matching order: more specific rules come first."""

from __future__ import annotations

from sweep.diagnose.model import LineRule
from sweep.diagnose.rules_gpu import GPU
from sweep.diagnose.rules_launch import LAUNCH
from sweep.diagnose.rules_net import NET
from sweep.diagnose.rules_program import PROGRAM
from sweep.diagnose.rules_site import SITE

_FIRST = (
    "nccl-info-abort",
    "xid-application",
    "xid-recoverable",
    "shm-full",
    "duplicate-gpu",
    "ib-memlock",
    "host-oom",
    "xid-contained",
    "gpu-lost",
    "host-malloc",
    "oom-cuda",
    "collective-timeout",
    "peer-gone",
    "import-binary",
    "nan-stop",
)
_LAST = ("nccl-warn", "child-failed", "cancelled")


_BY_NAME = {item.name: item for item in (*GPU, *SITE, *NET, *LAUNCH, *PROGRAM)}
_BETWEEN = [name for name in _BY_NAME if name not in _FIRST and name not in _LAST]

RULES: tuple[LineRule, ...] = tuple(_BY_NAME[name] for name in (*_FIRST, *_BETWEEN, *_LAST))
