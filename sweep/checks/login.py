"""Tier ``login``: the scheduler, the shared file system and the environment, before anything is submitted."""

from __future__ import annotations

from collections.abc import Mapping

from sweep.checks.check import Check, Finding, Json, Rule, Stated, Verdict
from sweep.checks.rules import judged, number_of, quantity, values_of

READ = "sweep.doctor.login_readers"
REPLY_S = 5.0
"""longer, and a launcher that asks every 15 s would ask too often: sweep.executors waits ten times as long"""
RENAME_S = 0.1
KILL_WAIT_S = 10.0
"""a pilot's short teardown takes 2 s of each end; with less than this, nodes may be drained with `Kill task failed`"""
FREE_BYTES = 2.0**30
FREE_INODES = 10_000.0
"""a sweep of a few thousand attempts writes two files for each"""


def text_of(value: Json, key: str) -> str:
    """A text in a reading. Raises ValueError where it is not stated."""
    found = value.get(key) if isinstance(value, Mapping) else None
    if not isinstance(found, str) or not found:
        raise ValueError(f"{key} is not stated")
    return found


def plugin_of(value: Json, key: str) -> str:
    """A plug-in's type in the controller's configuration. Raises ValueError where that was not read.

    Where there is none, 22.05 states accounting_storage/none or preempt/none, and 25.11 "(null)", which is left out.
    """
    if isinstance(value, Mapping) and "SLURM_VERSION" in value and value.get(key) is None:
        return "none"
    return text_of(value, key)


def reply(value: Json, _: Stated) -> Finding:
    """The controller is up and answers quickly."""
    seconds, answer = number_of(value, "seconds"), text_of(value, "answer")
    fine = "is UP" in answer
    verdict = Verdict.BELOW_FLOOR if not fine else Verdict.OK if seconds <= REPLY_S else Verdict.WARNING
    return Finding(
        verdict=verdict, found=f"{answer.splitlines()[0]}, {seconds:.2f} s", expected=f"UP, within {REPLY_S:.0f} s"
    )


def programs(value: Json, _: Stated) -> Finding:
    """Slurm's commands, each with its version; one that is missing is named."""
    commands = values_of(value)
    missing = [name for name, found in commands.items() if found is None]
    versions = sorted({str(found) for found in commands.values() if found is not None})
    if missing:
        return Finding(verdict=Verdict.BELOW_FLOOR, found=f"missing: {', '.join(missing)}", expected="installed")
    return judged(len(versions) == 1, ", ".join(versions), "one version", otherwise=Verdict.WARNING)


def kill_wait(value: Json, _: Stated) -> Finding:
    """Time between SIGTERM and SIGKILL."""
    seconds = number_of(int(text_of(value, "KillWait").split()[0]))
    expected = f"at least {KILL_WAIT_S:.0f} s"
    return judged(seconds >= KILL_WAIT_S, f"{seconds:.0f} s", expected, otherwise=Verdict.WARNING, number=seconds)


def accounting(value: Json, _: Stated) -> Finding:
    """With accounting the end of a job is known after squeue has forgotten it."""
    kind = plugin_of(value, "AccountingStorageType")
    return judged(not kind.endswith("none"), kind, "accounting_storage/slurmdbd", otherwise=Verdict.WARNING)


def preemption(value: Json, _: Stated) -> Finding:
    """Whether other jobs may end a pilot."""
    found = plugin_of(value, "PreemptType")
    shown_, expected = f"{found}, {text_of(value, 'PreemptMode')}", "none: pilots are not ended by other jobs"
    return judged(found.endswith("none"), shown_, expected, otherwise=Verdict.WARNING)


def partition(value: Json, _: Stated) -> Finding:
    """The site's partition is up and has nodes."""
    row = values_of(value)
    nodes, up = number_of(row, "nodes"), row.get("up") is True
    found = f"{row.get('name')}: {nodes:.0f} nodes, {'up' if up else 'down'}, time limit {row.get('time_limit')}"
    wanted, limit = number_of(row, "pilot_time_s"), row.get("time_limit_s")
    short = isinstance(limit, (int, float)) and limit < wanted
    expected = f"up, with a time limit of at least {wanted:.0f} s (pilot_time)"
    return judged(up and nodes >= 1 and not short, found, expected)


def drained(value: Json, _: Stated) -> Finding:
    """Nodes that take no job, with reasons."""
    nodes = values_of(value)
    found = "; ".join(f"{node}: {why}" for node, why in list(nodes.items())[:8]) or "none"
    return judged(not nodes, found, "none", otherwise=Verdict.WARNING)


def accepted(value: Json, _: Stated) -> Finding:
    """`sbatch --test-only` of a pilot of the site's options."""
    answer = values_of(value)
    return judged(answer.get("accepted") is True, str(answer.get("answer"))[:200], "a pilot of one node is accepted")


def shared_files(value: Json, _: Stated) -> Finding:
    """Write with fsync, link and rename in the directory of sweeps; links are what makes a claim exclusive."""
    times = {name: number_of(value, f"{name}_s") for name in ("write", "link", "rename")}
    shown_ = ", ".join(f"{name} {seconds * 1e3:.1f} ms" for name, seconds in times.items())
    found, expected = f"{values_of(value).get('filesystem')}: {shown_}", f"each under {RENAME_S * 1e3:.0f} ms"
    return judged(max(times.values()) <= RENAME_S, found, expected, otherwise=Verdict.WARNING)


def room(value: Json, _: Stated) -> Finding:
    """Bytes and inodes that are left, by the quota too where the file system counts it."""
    free, inodes = number_of(value, "free_bytes"), number_of(value, "free_inodes")
    limited = bool(values_of(value).get("total_inodes"))
    enough = free >= FREE_BYTES and (not limited or inodes >= FREE_INODES)
    shown_ = f"{inodes:,.0f} inodes" if limited else "inodes not limited"
    return judged(enough, f"{quantity(free, 'B')}, {shown_}", "1 GB and 10,000 inodes")


def torch_and_driver(value: Json, stated: Stated) -> Finding:
    """Torch can be imported, and its CUDA is not newer than the driver's where this host has one, but for the minor
    version (PyTorch's compatibility).
    """
    versions = values_of(value)
    built, driver = versions.get("cuda"), versions.get("driver_cuda")
    found = f"python {versions.get('python')}, torch {versions.get('torch')}, CUDA {built}, driver's CUDA {driver}"
    if stated.gpu != "cpu" and built is None:
        expected = "a build of torch for GPUs, in the ranks' environment"
        return Finding(verdict=Verdict.WARNING, found=found, expected=expected)
    newer = bool(built and driver and int(str(built).split(".")[0]) > int(str(driver).split(".")[0]))
    return judged(not newer, found, "torch's CUDA at most the driver's", otherwise=Verdict.WARNING)


def lingering(value: Json, _: Stated) -> Finding:
    """Whether systemd-logind kills a user's processes at logout: the launcher is one."""
    kills, lingers = (values_of(value).get(name) for name in ("kill_user_processes", "linger"))
    if kills is None:
        raise ValueError("logind's setting cannot be read")
    found = f"KillUserProcesses={'yes' if kills else 'no'}, linger {'on' if lingers else 'off'}"
    fine = kills is False or lingers is True
    return judged(fine, found, "the launcher survives logout", otherwise=Verdict.WARNING)


def environment(value: Json, _: Stated) -> Finding:
    """NCCL_* that the user's shell or slurm.conf sets goes into every job; each is shown with its origin."""
    given = values_of(value)
    found = ", ".join(f"{name}={text}" for name, text in sorted(given.items())) or "none"
    return judged(given.keys().isdisjoint(TUNING), found, f"not set: {', '.join(TUNING)}", otherwise=Verdict.WARNING)


TUNING = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "NCCL_NVLS_ENABLE", "NCCL_MAX_NCHANNELS")
"""variables that replace NCCL's own choice: ClusterMAX asks for them to be unset"""


def check(name: str, reader: str, evaluate: Rule, remedy: str) -> Check:
    """A check of this tier."""
    return Check(name=name, tier="login", reader=f"{READ}:{reader}", evaluate=evaluate, remedy=remedy)


SLURM: tuple[Check, ...] = (
    check("Slurm commands", "programs", programs, "load Slurm's module, or put its bin directory in PATH"),
    check("controller", "controller", reply, "ask the administrators; a slow controller delays every submission"),
    check("partition", "partition", partition, "name another partition in the site, or a shorter pilot_time"),
    check(
        "a pilot is accepted",
        "test_only",
        accepted,
        "correct account, qos, partition or sbatch options in the site",
    ),
    check("KillWait", "config", kill_wait, "ask for KillWait=30 (Slurm's default)"),
    check(
        "preemption",
        "config",
        preemption,
        "use a QOS or partition that is not preempted; pilots resume, but lose their run",
    ),
    check("drained nodes", "drained", drained, "see `sinfo -R`; fewer nodes can be asked for"),
    check("accounting", "config", accounting, "without slurmdbd sweeps work, but the end of old jobs cannot be known"),
)
"""about the scheduler: left out for the local executor"""

LOGIN: tuple[Check, ...] = (
    *SLURM,
    check("shared files", "shared_files", shared_files, "put sweeps on a faster file system: `--dir`"),
    check("room", "room", room, "remove old sweeps, or raise the quota"),
    check("torch", "torch", torch_and_driver, "install torch in the ranks' environment"),
    check("logout", "logind", lingering, "`loginctl enable-linger`, or run the launcher in a job"),
    check(
        "NCCL variables",
        "nccl_variables",
        environment,
        "unset what was set for another purpose; what must stay belongs in the site's `env`",
    ),
)
"""all checks of the tier"""
