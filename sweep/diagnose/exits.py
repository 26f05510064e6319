"""The diagnosis of an exit code or signal alone. Codes above 128 are how shells report a signal."""

from __future__ import annotations

import signal as signals

from sweep.diagnose.model import Hit, Weight
from sweep.outcomes import Outcome

_CRASH = (
    "A native library crashed: run the rank with PYTHONFAULTHANDLER=1, and check compiled extensions against "
    "torch, CUDA and driver."
)
_COMMAND = "The command could not be run as written: check the program's path, permissions and arguments."

_SIGNALS: dict[int, tuple[Outcome, Weight, str]] = {
    signals.SIGSEGV: (Outcome.SEGFAULT, Weight.SUSPECT, _CRASH),
    signals.SIGILL: (Outcome.SEGFAULT, Weight.SUSPECT, _CRASH),
    signals.SIGFPE: (Outcome.SEGFAULT, Weight.SUSPECT, _CRASH),
    signals.SIGBUS: (
        Outcome.SEGFAULT,
        Weight.SUSPECT,
        "SIGBUS: mostly a full /dev/shm or a truncated mapped file: enlarge /dev/shm.",
    ),
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
    2: (
        Outcome.CONFIG_ERROR,
        Weight.SIGN,
        "Exit code 2 is how argument parsers refuse: " + _COMMAND[0].lower() + _COMMAND[1:],
    ),
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
    """The hit for an exit; None if it shows no failure (0, or unknown)."""
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
