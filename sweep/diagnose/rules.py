"""The table of all rules, in matching order: more specific rules come first."""

from __future__ import annotations

from sweep.diagnose.model import LineRule
from sweep.diagnose.rules_gpu import GPU
from sweep.diagnose.rules_net import NET
from sweep.diagnose.rules_program import PROGRAM
from sweep.diagnose.rules_site import SITE

_FIRST = (
    "nccl-info-abort",
    "xid-application",
    "xid-recoverable",
    "nccl-shm-full",
    "duplicate-gpu",
    "slurm-oom",
    "kernel-oom",
    "ecc",
    "oom-cuda",
    "collective-timeout",
    "peer-gone",
    "import-binary",
    "nan-stop",
)
_LAST = ("nccl-warn", "gloo-error", "elastic-report", "slurm-task-end", "slurm-cancelled")


def _rank(item: LineRule) -> int:
    if item.name in _FIRST:
        return _FIRST.index(item.name) - len(_FIRST)
    return 1 + _LAST.index(item.name) if item.name in _LAST else 0


RULES: tuple[LineRule, ...] = tuple(sorted((*GPU, *SITE, *NET, *PROGRAM), key=_rank))
