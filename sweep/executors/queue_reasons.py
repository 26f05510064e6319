"""Why Slurm leaves a job in the queue, in plain words, and what its user can do. Pure.

Slurm's words: src/common/job_state_reason.c (22.05 to 25.11), and the texts that the controller puts in their place.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_LIMITS = "`sacctmgr show qos,assoc` lists limits"
_MEND = "mend {} in the sweep's site.yaml, between `sweep cancel` and `sweep resume`"
_PARTITION = _MEND.format("`partition`, `max_nodes`, `pilot_time`") + "; `scontrol show partition` lists limits"
_JOB = _MEND.format("`max_nodes`, `pilot_time`, `account`, `qos`") + f"; {_LIMITS}"
_NODES = "`sinfo -R` and `scontrol show reservation` say why and until when"
_OTHERS = f"it starts as other jobs end, but never if it alone asks for more than the limit; {_LIMITS}"
_NEVER = (
    ("JobHeldUser", "it is held by its user", "release it: `scontrol release JOB`"),
    ("JobHeldAdmin", "it is held by an administrator", "ask them to release job JOB"),
    ("JobHoldMaxRequeue|[a-z ]{1,40}held$", "its start failed", "inform the administrators; `scontrol release JOB`"),
    ("DependencyNeverSatisfied", "a job on which it depends failed", _MEND.format("`sbatch`")),
    ("(Bad)?Constraints", "no nodes have what it asks for", _MEND.format("`constraint`, `gpus_per_node`, `sbatch`")),
    (
        "Partition(Node|Time)Limit|PartitionConfig",
        "it asks for more nodes or time than its partition allows",
        _PARTITION,
    ),
    ("Invalid(Account|QOS)|(Account|QOS)NotAllowed", "its account or QOS is refused", _MEND.format("`account`, `qos`")),
    ("Reservation(Deleted|Invalid)", "its reservation does not exist any more", _MEND.format("`reservation`")),
    ("(QOS|Assoc)Max[A-Za-z]{1,30}Per(Job|Node)", "it asks for more than each job may", _JOB),
    ("QOSMin|MaxMemPerLimit|(QOS|Association)TimeLimit", "it asks for more, or less, than each job may", _JOB),
)
"""(pattern, what it means, what the user can do; JOB is its id) of what time alone does not change"""
_LATER = (
    ("Priority$|Resources$|$", "it waits for its turn, or for free nodes", ""),
    ("Partition(Down|Inactive)", "its partition is closed", "it starts once an administrator opens it"),
    ("ReqNodeNotAvail|NodeDown|Nodes required for", "nodes that it needs are down, drained or reserved", _NODES),
    ("(QOS|Assoc)Grp[A-Za-z]{0,20}(Minutes|Wall)", "your group's hours are used up", f"ask for more; {_LIMITS}"),
    ("QOSMax[A-Za-z]{1,20}PerUser|(Assoc|QOS)Max(Jobs|Submit)", "your own share of the cluster is in use", _OTHERS),
    ("(QOS|Assoc)Grp|Max[A-Za-z]{1,20}PerAccount", "your group's share of the cluster is in use", _OTHERS),
)


class Wait(NamedTuple):
    """What a reason means. ``never``: it does not start before a person does something."""

    text: str
    remedy: str = ""
    never: bool = False


def wait(reason: str) -> Wait:
    """The meaning of Slurm's reason; of one that is not known the reason itself."""
    plain = reason.replace("_", " ")
    for rows in (_NEVER, _LATER):
        for pattern, text, remedy in rows:
            if re.match(pattern, plain):
                return Wait(text, remedy, rows is _NEVER)
    return Wait(plain)
