"""From all facts of an attempt's end to its one cause: the earliest cause, not the loudest consequence."""

from __future__ import annotations

import math
import re
import signal as signals
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from sweep.diagnose.model import Diagnosis, Hit, RankEnd, Weight
from sweep.diagnose.rules_program import BUS_ERROR, CRASH
from sweep.diagnose.scan import continues, plain, scan
from sweep.outcomes import Outcome

_FIRST, _LAST = -1.0, math.inf

_STATES: dict[str, Outcome] = {
    "OUT_OF_MEMORY": Outcome.OOM_HOST,
    "NODE_FAIL": Outcome.NODE_FAIL,
    "BOOT_FAIL": Outcome.NODE_FAIL,
    "LAUNCH_FAILED": Outcome.NODE_FAIL,
    "PREEMPTED": Outcome.PREEMPTED,
    "TIMEOUT": Outcome.TIME_LIMIT,
    "DEADLINE": Outcome.TIME_LIMIT,
    "CANCELLED": Outcome.CANCELLED,
    "REVOKED": Outcome.CANCELLED,
}
"""by Slurm's state of the job"""

_VERDICTS: dict[Outcome, tuple[Weight, float]] = {
    Outcome.HANG: (Weight.SUSPECT, _LAST),
    Outcome.TIME_LIMIT: (Weight.SUSPECT, _LAST),
    Outcome.UNKNOWN: (Weight.SIGN, _LAST),
}
"""Any other verdict of the watcher comes first, as a cause: the watcher knows what it did to the ranks"""

_ADVICE: dict[Outcome, str] = {
    Outcome.HANG: "Look at the stacks of the rank that stopped first; the others wait for it. It is retried once on "
    "other nodes.",
    Outcome.TIME_LIMIT: "Raise the time limit, or measure fewer iterations; check whether the run was slow or stuck.",
    Outcome.NODE_FAIL: "The node is excluded and the run retried elsewhere; inform the administrators.",
    Outcome.NETWORK: "The pilot's own connection to a node failed: it is retried. Check that node's network, or "
    "what ended its agent (agents.log of the pilot).",
    Outcome.PREEMPTED: "Run again, or use a partition or QOS that is not preempted.",
    Outcome.CANCELLED: "It was cancelled: `sweep resume` continues.",
    Outcome.OOM_HOST: "Ask for more host memory (--mem), or use fewer data-loading workers.",
    Outcome.LOST: "The attempt's end was not reported: it is retried.",
}
_HEALTHY = Diagnosis(
    None, "no line reports a failure", "Nothing to do if the work was done; else see sacct and the other ranks' logs."
)


def diagnose(
    ranks: Sequence[RankEnd],
    *,
    kernel: Sequence[str] = (),
    verdict: Outcome | None = None,
    verdict_text: str = "",
) -> Diagnosis:
    """The cause of an attempt's end. ``outcome`` is None if every rank ended well and nothing shows a failure.

    ``kernel``: lines of the attempt's nodes and time: Xid, OOM killer, segfaults. ``verdict``: the watcher's: hang,
    time_limit, node_fail, cancelled, preempted, …

    SIGKILL that was not ours is ``oom_host`` only if the kernel or Slurm reports it, else ``unknown``. 127 (and 126 and
    argparse's 2) without a better reason is ``config_error``: the command is wrong.
    """
    well = all(rank.exit_code == 0 and rank.signal is None and rank.failure is None for rank in ranks)
    hits = [*_kernel(kernel), *_verdict(verdict, verdict_text)]
    if not (well and ranks):
        # The rank killed from outside before any other ended: its peers' connection errors are consequences.
        first = min((r for r in ranks if r.ended_at_s is not None), key=lambda r: r.ended_at_s or 0.0, default=None)
        outside = first is not None and first.signal == signals.SIGKILL and not first.killed_by_us
        hits += [hit for rank in ranks for hit in _of_rank(rank, first_killed=outside and rank is first)]
    elif not hits:
        hits = [hit for rank in ranks for hit in _of_rank(rank) if hit.outcome is Outcome.NAN_LOSS]
    if well and ranks and verdict is None:
        hits = [hit for hit in hits if hit.source != "kernel" and hit.outcome is not Outcome.CANCELLED]
    return _chosen(hits)


def diagnose_text(text: str) -> Diagnosis:
    """The cause that a log file shows; ``outcome`` is None for a healthy log."""
    hits = scan(text) or stated_error(text)
    return _chosen(replace(hit, order=(0.0, float(hit.position))) for hit in hits)


def diagnose_state(state: str) -> Diagnosis:
    """What Slurm's state of a job (OUT_OF_MEMORY, NODE_FAIL, …) says of its end, where nothing else is known."""
    outcome = _STATES.get(state.upper().partition(" ")[0])
    return Diagnosis(outcome, f"Slurm's state of the job: {state}", _ADVICE[outcome]) if outcome else _HEALTHY


def _chosen(hits: Iterable[Hit]) -> Diagnosis:
    best = min(hits, key=lambda hit: (-hit.weight, hit.order), default=None)
    if best is None:
        return _HEALTHY
    return Diagnosis(best.outcome, best.evidence, best.advice, best.rank, best.node)


def _of_rank(rank: RankEnd, *, first_killed: bool = False) -> Iterator[Hit]:
    """Hits from a rank's exception, log and exit, in the order of its end among the ranks."""
    when = (math.inf if rank.ended_at_s is None else rank.ended_at_s) + 1e9 * rank.killed_by_us
    for index, hit in enumerate([*_failure(rank), *scan(rank.log_tail)]):
        # A log's word that something was killed is a guess, for bare text alone.
        if hit.source == "killed" or (
            rank.killed_by_us and hit.outcome in (Outcome.PYTHON_EXCEPTION, Outcome.CANCELLED)
        ):
            continue
        yield replace(hit, order=(when, float(index)), rank=rank.rank, node=rank.node)
    end = None if rank.killed_by_us else exit_hit(rank.exit_code, rank.signal)
    if end is not None:
        if first_killed:
            end = replace(end, weight=Weight.SUSPECT)
        yield replace(end, order=(when, math.inf), rank=rank.rank, node=rank.node)


def _failure(rank: RankEnd) -> list[Hit]:
    if rank.failure is None:
        return []
    line = f"{rank.failure.get('type', 'Exception')}: {rank.failure.get('message', '')}"
    found = scan(line) or scan(str(rank.failure.get("traceback", "")))
    advice = "The program raised this exception: its traceback is in the record and in the rank's log."
    return found or [Hit(Outcome.PYTHON_EXCEPTION, Weight.SUSPECT, line[:500], advice)]


def _kernel(lines: Sequence[str]) -> Iterator[Hit]:
    """Xid and machine checks come before the ranks' own logs; OOM and segfaults add what these lack."""
    for index, hit in enumerate(scan("\n".join(lines))):
        first = hit.weight is Weight.CAUSE and hit.outcome in (Outcome.XID_HARDWARE, Outcome.NODE_FAIL)
        order = (-2.0 if first else math.inf, float(index))
        yield replace(hit, order=order, source="kernel")


def _verdict(verdict: Outcome | None, text: str) -> Iterator[Hit]:
    if verdict is None or verdict is Outcome.OK:
        return
    weight, when = _VERDICTS.get(verdict, (Weight.CAUSE, _FIRST))
    evidence = text or f"the watcher's verdict: {verdict}"
    yield Hit(verdict, weight, evidence, _ADVICE.get(verdict, "Read the attempt's evidence."), order=(when, 0.0))


_COMMAND = "The command could not be run as written: check the program's path, permissions and arguments."

_SIGNALS: dict[int, tuple[Outcome, Weight, str]] = {
    signals.SIGSEGV: (Outcome.SEGFAULT, Weight.SUSPECT, CRASH),
    signals.SIGILL: (Outcome.SEGFAULT, Weight.SUSPECT, CRASH),
    signals.SIGFPE: (Outcome.SEGFAULT, Weight.SUSPECT, CRASH),
    signals.SIGBUS: (Outcome.SEGFAULT, Weight.SUSPECT, BUS_ERROR),
    signals.SIGKILL: (
        Outcome.UNKNOWN,
        Weight.SIGN,
        "Something killed the rank and neither the kernel's OOM killer nor Slurm reports why: check dmesg and ask "
        "the administrators.",
    ),
    signals.SIGABRT: (
        Outcome.UNKNOWN,
        Weight.SIGN,
        "The process aborted itself: the end of its log has the reason.",
    ),
    signals.SIGTERM: (
        Outcome.CANCELLED,
        Weight.CONSEQUENCE,
        "Something other than the sweep terminated the rank: scancel, or the site's own limits.",
    ),
    signals.SIGINT: (Outcome.CANCELLED, Weight.CONSEQUENCE, "The rank was interrupted from outside."),
    signals.SIGHUP: (Outcome.CANCELLED, Weight.CONSEQUENCE, "The rank's terminal or session went away."),
    signals.SIGXCPU: (Outcome.TIME_LIMIT, Weight.SUSPECT, "A CPU time limit was reached (ulimit -t): raise it."),
    signals.SIGXFSZ: (Outcome.DISK_FULL, Weight.SUSPECT, "A file size limit was reached (ulimit -f): raise it."),
}
_CODES: dict[int, tuple[Outcome, Weight, str]] = {
    2: (Outcome.CONFIG_ERROR, Weight.SIGN, f"Argument parsers refuse with exit code 2. {_COMMAND}"),
    # timeout(1)
    124: (Outcome.TIME_LIMIT, Weight.CONSEQUENCE, "timeout(1) ended the command: give it more time."),
    126: (Outcome.CONFIG_ERROR, Weight.CONSEQUENCE, _COMMAND),
    127: (Outcome.CONFIG_ERROR, Weight.CONSEQUENCE, _COMMAND),
}
_OTHER = (
    Outcome.UNKNOWN,
    Weight.SIGN,
    "The program failed without a known message: read the whole log of this rank.",
)


def exit_hit(code: int | None, signal: int | None) -> Hit | None:
    """The hit for an exit; None if it shows no failure (0, or unknown). Shells report a signal as a code above 128."""
    if signal is None and code is not None and (code < 0 or 128 < code < 128 + 65):
        signal = -code if code < 0 else code - 128
    if signal is not None:
        outcome, weight, advice = _SIGNALS.get(signal, _OTHER)
        name = signals.Signals(signal).name if signal in set(signals.Signals) else "unknown"
        return Hit(outcome, weight, f"ended by signal {signal} ({name})", advice)
    if not code:
        return None
    outcome, weight, advice = _CODES.get(code, _OTHER)
    return Hit(outcome, weight, f"exit code {code}", advice)


_END = 12
"""lines at a log's end among which an error is taken as its end"""
_ERROR = re.compile(
    r"^(?!.*\b(?:(?:WARN(?:ING)?|INFO|DEBUG|Hardware Error)\b|ignored\.?$))(?!wandb:)"
    r"(?:[^\s:\[\]]{0,80}(?:[:\]]|\[[^\]\n]{1,80}\]) ?){0,12}"
    r"(?:\[?(?:\w{1,40} )?(?:fatal|error|critical|panic)(?:: |\] |\]: | - )(?!\s*[-+]?[\d.])\S"
    r"|.{0,100}(?<![\w-])(?-i:ERROR|CRITICAL|FATAL)(?![\w-])[ |:-]{1,8}[a-z_]"
    r"|(?-i:[EF])\d{4} \d\d:\d\d:\d\d\.\d"
    r"|.{0,200}\b(?:exit(?:ed|s)?|ended|terminated|returned|failed)\b.{0,20}\b(?:code|status)\b"
    r"[ :=]{0,3}-?[1-9]\d{0,2}\b"
    r"|(?:status|state|phase)\b\W{1,20}(?:failed|error)\b)",
    re.IGNORECASE,
)
_READ_ON = "The log states this error at its end and no known cause: read what it writes before."


def stated_error(text: str) -> list[Hit]:
    """The first of the errors that the last lines state, where the log shows no further work; else none."""
    text = plain(text)
    for match in deque(re.finditer(r"^.*\S.*$", text, re.MULTILINE), _END):
        line = match.group().strip()[:2000]
        if _ERROR.search(line) and not continues(text, match.end()):
            return [Hit(Outcome.UNKNOWN, Weight.SIGN, line[:500], _READ_ON, match.start(), "stated")]
    return []
