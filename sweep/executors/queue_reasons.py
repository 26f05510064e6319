"""Why Slurm leaves a job in the queue, in plain words, and what its user can do. Pure.

Slurm's words: src/common/job_state_reason.c (22.05 to 25.11), and the texts that the controller puts in their place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SITE = "`sweep cancel`, correct the sweep's site.yaml, `sweep resume`"
_LIMITS = "`sacctmgr show assoc` and `sacctmgr show qos` list the limits"


@dataclass(frozen=True)
class Wait:
    """What a reason means."""

    text: str
    remedy: str = ""
    """with {job} in place of its id; empty where the user has nothing to do"""
    never: bool = False
    """it does not start before a person does something"""


_WAITS: tuple[tuple[str, Wait], ...] = (
    ("Priority$", Wait("other jobs come first")),
    ("Resources$", Wait("it is next once enough nodes are free")),
    ("JobHeldUser", Wait("it is held by its user", "release it: `scontrol release {job}`", never=True)),
    ("JobHeldAdmin", Wait("it is held by an administrator", "ask them to release job {job}", never=True)),
    (
        "JobHoldMaxRequeue|[a-z ]{1,40}held$",
        Wait(
            "it could not be started, and is held",
            "inform the administrators, then release it: `scontrol release {job}`",
            never=True,
        ),
    ),
    (
        "DependencyNeverSatisfied",
        Wait("a job on which it depends failed", f"the option `dependency`: {_SITE}", never=True),
    ),
    ("Dependency", Wait("it waits for the job on which it depends")),
    (
        "BadConstraints|Constraints",
        Wait("no nodes have what it asks for", f"constraint, GPUs, memory: {_SITE}", never=True),
    ),
    (
        "Partition(Node|Time)Limit|PartitionConfig",
        Wait(
            "it asks for more nodes or time than its partition allows",
            f"`scontrol show partition` lists what it allows; `partition`, `max_nodes`, `pilot_time`: {_SITE}",
            never=True,
        ),
    ),
    (
        "Partition(Down|Inactive)",
        Wait("its partition is closed", "it starts once an administrator opens the partition"),
    ),
    (
        "ReqNodeNotAvail|NodeDown|Nodes required for job are DOWN",
        Wait(
            "nodes that it needs are down, drained or reserved",
            "`sinfo -R` and `scontrol show reservation` say why and until when",
        ),
    ),
    (
        "Invalid(Account|QOS)|(Account|QOS)NotAllowed|AccountingPolicy",
        Wait("its account or QOS is not valid or not allowed there", f"`account`, `qos`: {_SITE}", never=True),
    ),
    (
        "Reservation(Deleted|Invalid)",
        Wait("its reservation does not exist any more", f"`reservation`: {_SITE}", never=True),
    ),
    ("Reservation", Wait("its reservation has not begun")),
    ("DeadLine", Wait("it cannot end before its deadline", f"the option `deadline`: {_SITE}", never=True)),
    (
        "(QOS|Assoc)Grp[A-Za-z]{0,20}(Minutes|Wall)|QOSUsageThreshold",
        Wait("your group's hours are used up", f"it starts once its group gets more; {_LIMITS}"),
    ),
    (
        "(QOS|Assoc)Grp|Max[A-Za-z]{1,20}PerAccount|QOS(Job|Resource)Limit|Association(Job|Resource)Limit",
        Wait(
            "your group's share of the cluster is in use",
            f"it starts as the group's jobs end, and never if it alone asks for more than the limit; {_LIMITS}",
        ),
    ),
    (
        "QOSMax[A-Za-z]{1,20}PerUser|AssocMaxJobsLimit|(QOS|Assoc)MaxSubmit",
        Wait(
            "your own share of the cluster is in use",
            f"it starts as your other jobs end, and never if it alone asks for more than the limit; {_LIMITS}",
        ),
    ),
    (
        "(QOS|Assoc)M(ax|in)|MaxMemPerLimit|(QOS|Association)TimeLimit",
        Wait(
            "it asks for more, or less, than each job may",
            f"{_LIMITS}; `max_nodes`, `pilot_time`, `account`, `qos`: {_SITE}",
            never=True,
        ),
    ),
    ("BeginTime", Wait("its earliest time to begin has not come")),
    ("Licenses", Wait("the licences that it asks for are in use")),
)


def wait(reason: str) -> Wait:
    """The meaning of Slurm's reason; of one that is not known the reason itself."""
    plain = reason.replace("_", " ")
    return next((known for pattern, known in _WAITS if re.match(pattern, plain)), Wait(plain or "not considered yet"))


def same_wait(one: str | None, other: str) -> bool:
    """Whether nothing changes for the user: between these a job changes with each round of the scheduler."""
    ordinary = ("", "Priority", "Resources")
    return one == other or (one in ordinary and other in ordinary)
