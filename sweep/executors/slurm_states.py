"""Slurm's states and messages, parsed. Pure: its clients' output in, values out.

State codes: man squeue, "JOB STATE CODES" (22.05 to 25.11). What is not listed here is UNKNOWN.

Why Slurm leaves a job in the queue, in plain words, and what its user can do. Pure.

Slurm's words: src/common/job_state_reason.c (22.05 to 25.11), and the texts that the controller puts in their place.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sweep.executors.executor import JobState, JobStatus

SQUEUE_FORMAT = "%i|%T|%e|%j|%r|."
SACCT_FORMAT = "JobIDRaw,State,End,JobName"
"""with ``-p``, by which each line ends with a bar"""
_WHOLE = {
    SQUEUE_FORMAT: ("JOBID|STATE|END_TIME|NAME|REASON|.\n", "|.\n"),
    SACCT_FORMAT: ("JobIDRaw|State|End|JobName|\n", "|\n"),
}
"""form -> (the header of every whole answer, the end of each of its lines)"""
_JOB_ID = re.compile(r"\d[\w+.,%\[\]-]*")
"""of a job, or of an array, a part of a heterogeneous job or a step, which are no pilots"""
_AFTERWARDS = re.compile(r"(?is)(?!.*(?:error|fatal):)\s*(?:[^|\d\s][^|]*\n)?")
"""no beginning of a job's line, which has its id or more, and no client's message that it could not go on. It counts
only after a job's line: after the header alone the client may have ended before the first one"""

_WORDS = {
    # Not started, or to be started again.
    JobState.PENDING: "PENDING CONFIGURING REQUEUED REQUEUE_FED REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT",
    # Holds nodes. COMPLETING too: processes may still live, a record may still come.
    JobState.RUNNING: "RUNNING COMPLETING RESIZING SIGNALING STAGE_OUT",
    # Holds nodes; its processes are stopped (gang scheduling, scontrol suspend).
    JobState.SUSPENDED: "STOPPED SUSPENDED",
    # Ended.
    JobState.GONE: "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED LAUNCH_FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED"
    " RECONFIG_FAIL TIMEOUT",
}
STATES = {word: state for state, words in _WORDS.items() for word in words.split()}

_NOT_NOW = re.compile(
    r"(Max|Grp)SubmitJob|MaxJobs(Per|Account|Limit)|job queue full|sleeping and retrying"
    r"|Unable to contact|connect failure|Connection refused|Connection timed out|Socket timed out"
    r"|Zero Bytes were transmitted|Rate limit exceeded|RPC rate|standby mode|temporarily"
    r"|Unable to allocate memory|Slurm controller not responding"
    r"|If munged is up",  # only where munged's socket does not answer (tried on 22.05)
    re.IGNORECASE,
)
_OWN_LIMIT = re.compile(r"\b(?:QOS|Assoc|Partition)(?!Grp)[A-Za-z]*(?:Limit|Time|Nodes?|PerJob|PerUser|PerAccount)\b")
"""a limit on this job's size. A group's limit (Grp) is free again once the group's other jobs end"""
_PERMANENT = re.compile(
    r"invalid (?!authentication|job credential)|specification invalid|is invalid|unrecognized|ambiguous"
    r"|mutually exclusive|requires an argument|denied|not permitted|than permitted"
    r"|Requested node configuration is not available|Memory required by task|can ?not be satisfied"
    r"|Unable to open|only permitted by",
    re.IGNORECASE,
)
"""texts of slurm_errno.c and of the clients' option parsing (22.05 to 25.11) that time does not change"""


def job_state(word: str) -> JobState:
    """Parse Slurm's name of a state; accepts "CANCELLED by 1000" and "RUNNING+"."""
    first = (word.split() or [""])[0].rstrip("+")
    return STATES.get(first, JobState.UNKNOWN)


def parse(text: str, form: str) -> dict[str, JobStatus] | None:
    """Status by job id, from an answer in SQUEUE_FORMAT or SACCT_FORMAT; None where it is not whole: it has no header,
    or a line is no job's or has no end. What a site's wrapper prints before the header or after the jobs is no part.

    Of a job's several rows (sacct has one for each size of a job that was resized) the last one counts. The last
    column may contain a bar, and a job's name a line end.
    """
    header, end = _WHOLE[form]
    _, begun, answer = text.partition(header)
    *lines, rest = answer.split(end)
    if not begun or not _AFTERWARDS.fullmatch(rest) or (rest.strip() and not lines):
        return None
    columns, statuses = header.removesuffix(end).count("|") + 1, {}
    for line in lines:
        fields = line.split("|", columns - 1)
        if len(fields) < columns or not _JOB_ID.fullmatch(fields[0]):
            return None
        if fields[0].isdecimal():
            job_id, word, ended, name, *reason = fields
            statuses[job_id] = status_of(word, ended, name, *reason)
    return statuses


def status_of(word: str, ended: str, name: str, reason: str = "") -> JobStatus:
    """The status of a job, from Slurm's texts; ``ended`` is in Unix seconds (SLURM_TIME_FORMAT=%s), or "Unknown"."""
    state = job_state(word)
    return JobStatus(
        state=state,
        word=word,
        reason="" if reason in ("None", "(null)") else reason,
        name=name,
        ended_at=float(ended) if state is JobState.GONE and ended.isdecimal() and ended != "0" else None,
    )


_SHOWN = ("JobId=", " JobName=", " UserId=", " JobState=", " Reason=", " Dependency=", " EndTime=", " NodeList=")
"""keys in the order of ``scontrol show job``"""


def shown(text: str, job_id: str) -> JobStatus:
    """The status of a job, from what ``scontrol show job`` prints in one line; UNKNOWN where that is not whole, or of
    another job.
    """
    before, rest = [], text
    for key in _SHOWN:
        value, _, rest = rest.partition(key)
        before.append(value)
    start, job, name, _, word, reason, _, ended = before
    if start or job != job_id or " " not in rest:
        return JobStatus(state=JobState.UNKNOWN, reason="scontrol's answer is not whole")
    return status_of(word, ended.partition(" ")[0], name, reason)


def job_id_of(text: str) -> str | None:
    """The id in what ``sbatch --parsable`` prints, whatever a site's wrapper prints around it."""
    for line in reversed(text.splitlines()):
        found = re.fullmatch(r"\s*(\d+)(?:;\S+)?\s*", line) or re.search(r"Submitted batch job (\d+)", line)
        if found:
            return found[1]
    return None


def may_work_later(message: str) -> bool:
    """Whether the same submission may be accepted later: unless it is known that it never will.

    "Job violates accounting/QOS policy" covers both the number of jobs, which passes, and the size of this one,
    which does not; where Slurm names the limit in an earlier line, that decides.
    """
    return bool(_NOT_NOW.search(message)) or not (_PERMANENT.search(message) or _OWN_LIMIT.search(message))


_MEANINGS = (
    (r"GrpSubmitJob", "your group has reached its limit of jobs in the queue"),
    (r"(QOS|Assoc)Grp", "your group's share of the cluster is in use"),
    (r"inactive or drain|configuration not available now", "the partition is closed for now"),
    (r"MaxSubmitJob|MaxJobs(Per|Account|Limit)|QOS policy", "you have reached your limit of jobs in the queue"),
    (r"job queue full|sleeping and retrying|unable to accept job", "the cluster has reached its limit of jobs"),
    (r"Rate limit|RPC rate", "too many requests to the controller"),
    (r"If munged is up", "munge, which authenticates you to the cluster, does not answer on this machine"),
    (
        r"contact|connect|endpoint|timed out|did not answer|Zero Bytes|standby|not responding",
        "the controller is down or slow",
    ),
)


def meaning(message: str) -> str:
    """A plain explanation of a temporary rejection; empty for an unknown one."""
    return next((text for pattern, text in _MEANINGS if re.search(pattern, message, re.IGNORECASE)), "")


def setting(config: str, name: str) -> str:
    """A value in what ``scontrol show config`` prints; empty where it has none, or no whole one."""
    for line in config.splitlines(keepends=True):
        key, _, value = line.partition("=")
        if key.strip() == name and line.endswith("\n"):
            return value.strip()
    return ""


_LIMITS = "`sacctmgr show qos,assoc` lists limits"
_MEND = "mend {} in the sweep's site.yaml, between `sweep cancel` and `sweep resume`"
_PARTITION = _MEND.format("`partition`, `max_nodes`, `pilot_time`") + "; `scontrol show partition` lists limits"
_JOB = _MEND.format("`max_nodes`, `pilot_time`, `account`, `qos`") + f"; {_LIMITS}"
_NODES = "`sinfo -R` and `scontrol show reservation` say why and until when"
_OTHERS = f"it starts as other jobs end, but never if it alone asks for more than the limit; {_LIMITS}"
NOT_STARTED = "NotStarted"
"""ours, for a pilot of a job that runs"""
_NEVER = (
    ("JobHeldUser", "it is held by its user", "release it: `scontrol release JOB`"),
    ("JobHeldAdmin", "it is held by an administrator", "ask them to release job JOB"),
    ("JobHoldMaxRequeue|[a-z ]{1,40}held$", "its start failed", "inform the administrators; `scontrol release JOB`"),
    ("DependencyNeverSatisfied", "a job on which it depends failed", _MEND.format("`sbatch`")),
    ("(Bad)?Constraints", "no nodes have what it asks for", _MEND.format("`constraint`, `gpus_per_node`, `sbatch`")),
    (
        "Partition(Node|Time)Limit|PartitionConfig",
        "its partition allows no job of so many nodes or so much time",
        _PARTITION,
    ),
    ("Invalid(Account|QOS)|(Account|QOS)NotAllowed", "its account or QOS is refused", _MEND.format("`account`, `qos`")),
    ("Reservation(Deleted|Invalid)", "its reservation does not exist any more", _MEND.format("`reservation`")),
    ("(QOS|Assoc)Max[A-Za-z]{1,30}Per(Job|Node)", "it asks for more than each job may", _JOB),
    ("QOSMin|MaxMemPerLimit|(QOS|Association)TimeLimit", "it asks for more, or less, than each job may", _JOB),
)
"""(pattern, what it means, what the user can do; JOB is its id) of what time alone does not change"""
_LATER = (
    (
        NOT_STARTED,
        "its job runs, but its pilot has not started for long",
        "a prolog, an image, the site's `setup` or a file system may hang; `scancel JOB` frees its nodes",
    ),
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
