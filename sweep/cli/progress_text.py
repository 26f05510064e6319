"""A sweep's progress as short texts: counts, time left, cost. Shared by the live view, status and other commands."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sweep.errors import first_names, plural
from sweep.executors.slurm_states import wait
from sweep.planning.runs import ASSUMED_RUN_S
from sweep.state.node_time import total

if TYPE_CHECKING:
    from sweep.inputs.site import Site
    from sweep.state.state import PilotState, SweepState
    from sweep.store.sweep import Sweep

NAMES_SHOWN, PILOTS_SHOWN = 5, 10
NOT_RUN = "not_run_"
"""what the states of runs that will not be started begin with, before the reason"""


def summary_line(sweep: Sweep) -> str:
    """Counts, pilots, time left and cost, in one line."""
    spent = f"{hours_text(sweep.tally.gpu_hours(time.time())[0])} {hours_unit(sweep.site)}"
    return f"{events_text(sweep)}; {spent}; {full_text(sweep) or eta(sweep)}"


def events_text(sweep: Sweep) -> str:
    """What of the line only events change, and not the time: counts and pilots."""
    words = ", ".join(text for text, _ in counted(sweep.tally.counts(sweep.skipped())))
    repeats = len(sweep.runs) - len({planned.configuration for planned in sweep.runs})
    again = f" ({plural(repeats, 'repeat')})" if repeats else ""
    text = f"{plural(sweep.tally.total, 'run')}{again}: {words}; {pilots_text(sweep.sweep_state)}"
    return "; ".join(filter(None, (text, delay_text(sweep))))


def delay_text(sweep: Sweep) -> str:
    """Why no further pilot is submitted now, if the scheduler refuses and runs wait; else empty."""
    sweep_state = sweep.sweep_state
    if sweep_state.delayed is None or sweep_state.cancelled or "waiting" not in sweep.tally.counts():
        return ""
    at = time.strftime("%H:%M:%S", time.localtime(sweep_state.delayed_at))
    return f"the scheduler refused a further pilot at {at}: {sweep_state.delayed}; the launcher tries again later"


def pilots_text(sweep_state: SweepState) -> str:
    """Pilots running and queued, and those whose last line is written while the scheduler may still list their job."""
    held = [pilot for pilot in sweep_state.pilots.values() if pilot.open]
    running, ending = sum(pilot.running for pilot in held), sum(pilot.ended is not None for pilot in held)
    text = f"pilots: {running} running, {len(held) - running - ending} queued"
    if never := [pilot.waits for pilot in held if pilot.waits and pilot.started_at is None and wait(pilot.waits).never]:
        text += f", {len(never)} of them never to start ({', '.join(sorted(set(never)))})"
    return f"{text}, {ending} ending" if ending else text


def queue_texts(sweep_state: SweepState) -> list[str]:
    """What the user can do for pilots that wait, a text for each reason."""
    waiting: dict[str, list[PilotState]] = {}
    for pilot in sweep_state.pilots.values():
        if pilot.open and pilot.started_at is None and pilot.waits and wait(pilot.waits).remedy:
            waiting.setdefault(pilot.waits, []).append(pilot)
    texts = []
    for reason, pilots in waiting.items():
        names = first_names([pilot.name for pilot in pilots], 1)
        text, remedy, never = wait(reason)
        remedy = remedy.replace("JOB", ",".join(str(pilot.job_id) for pilot in pilots))
        texts.append(f"{names} {'never to start' if never else 'waiting'}: {text} ({reason}); {remedy}")
    return texts


def full_text(sweep: Sweep) -> str:
    """That no more fits on the sweep's file system while it is not done: pilots wait, as nothing is to be lost.

    Full is: not one block or not one inode is left. A quota that the file system does not count as its size is not
    seen, and a read-only one (an image of an ended sweep) has nothing to record.
    """
    counts = sweep.tally.counts(sweep.skipped())
    place = sweep.directory.path
    there = os.statvfs(place)
    no_inode = there.f_files > 0 and there.f_favail == 0
    full = (there.f_bavail == 0 or no_inode) and not there.f_flag & os.ST_RDONLY
    if not full or not (counts.get("waiting") or counts.get("running")):
        return ""
    full_of = "full" if there.f_bavail == 0 else "full (no inode is left)"
    text = f"the file system of {place} is {full_of}: nothing more is recorded until space is freed"
    from sweep.store import lease

    lives = any(pilot.running for pilot in sweep.sweep_state.pilots.values()) or lease.holder(sweep.directory)
    return f"{text}, then it goes on" if lives else f"{text}, then `sweep resume {place}` continues"


def counted(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    """Counts of runs as texts, each with its state: ok, running, waiting, failed by outcome, skipped and why.

    The order does not depend on the counts, but for failures: a line that is printed again and again stays comparable.
    """
    known = [word for word in ("ok", "running", "waiting") if word in counts]
    skipped = sorted(word for word in counts if word.startswith(NOT_RUN))
    failed = sorted(set(counts) - {*known, *skipped}, key=lambda word: (-counts[word], word))
    texts = {word: f"skipped ({word.removeprefix(NOT_RUN)})" for word in skipped}
    return [(f"{counts[word]:,} {texts.get(word, word)}", word) for word in (*known, *failed, *skipped)]


def eta(sweep: Sweep) -> str:
    """The time left as text, from predictions and the runs' durations so far; without either, that it is unknown."""
    tally, skipped = sweep.tally, sweep.skipped()
    counts = tally.counts(skipped)
    if not counts.get("waiting") and not counts.get("running"):
        unmeasured = sweep.unmeasured()
        return f"ended, {plural(len(unmeasured), 'run')} unmeasured" if unmeasured else "done"
    running = any(pilot.running for pilot in sweep.sweep_state.pilots.values())
    if not tally.informed:
        assumed = span_text(tally.seconds_left(time.time(), skipped))
        return f"time left unknown until a run has ended ({assumed} if each takes {ASSUMED_RUN_S:g} s)"
    text = f"{range_text(*tally.range_left(time.time(), skipped))} to go"
    return text if running else f"{text} once a pilot runs"


def node_time_texts(by_pilot: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Where the allocated node time went: of all pilots, and of each of the last ones where there are several."""
    shown = {"node time": total(by_pilot)} if by_pilot else {}
    if len(by_pilot) > 1:
        shown |= {name: total({name: by_pilot[name]}) for name in [*by_pilot][-PILOTS_SHOWN:]}
    texts = []
    for name, parts in shown.items():
        whole = sum(parts.values())
        words = ", ".join(f"{part} {seconds / whole:.1%}" for part, seconds in parts.items())
        texts.append(f"{name}: {hours_text(whole / 3600)} node-hours: {words}")
    return texts


def unmeasured_text(runs: Sequence[str], directory: Path) -> str:
    """The runs that stay unmeasured though nothing is wrong with them, and what measures them; empty without such."""
    if not runs:
        return ""
    return (
        f"{plural(len(runs), 'run')} unmeasured, by failures that were not their own: "
        f"`sweep resume {directory}` tries again: {first_names(runs, NAMES_SHOWN)}"
    )


def span_text(seconds: float) -> str:
    """A rough span of time: about 3 h 10 min."""
    minutes = round(seconds / 60)
    if minutes < 2:
        return "about a minute"
    if minutes < 120:
        return f"about {minutes} min"
    hours, rest = divmod(round(minutes / 10) * 10, 60)
    return f"about {hours} h {rest} min" if hours < 48 else f"about {hours / 24:.1f} days"


def range_text(low_s: float, high_s: float) -> str:
    """About 10 min to 2 h 10 min; one span where both ends read the same."""
    low, high = span_text(low_s), span_text(high_s)
    return low if low == high else f"{low.replace(' a minute', ' 1')} to {high.removeprefix('about ')}"


def saved(sweep: Sweep) -> tuple[float, float | None]:
    """(GPU-hours, dollars) that the runs left out would have taken; dollars are None where a price is not stated."""
    hours = sweep.tally.saved_gpu_hours(sweep.skipped())
    prices = {group: part.dollars_per_gpu_hour for group, part in sweep.site.parts.items()}
    priced = [None if (price := prices[group]) is None else price * value for group, value in hours.items()]
    known = [value for value in priced if value is not None]
    return sum(hours.values()), sum(known) if known and len(known) == len(priced) else None


def saved_text(sweep: Sweep) -> str:
    """About 35 GPU-hours ($88) saved; empty where nothing is left out."""
    hours, dollars = saved(sweep)
    money = "" if dollars is None else f" (${dollars:,.2f})" if dollars < 100 else f" (${dollars:,.0f})"
    return f"about {hours_text(hours)} {hours_unit(sweep.site)}{money} saved" if hours else ""


def hours_unit(site: Site) -> str:
    """What an hour of one rank is called."""
    return "rank-hours" if site.gpu == "cpu" else "GPU-hours"


def hours_text(hours: float) -> str:
    """0.012, 0.48, 7.3, 1,240."""
    if hours >= 100:
        return f"{hours:,.0f}"
    return f"{hours:.1f}" if hours >= 1 else f"{hours:.2g}"


def brief(message: str) -> str:
    """A message on one line, without the modules that the name of its exception begins with."""
    return re.sub(r"^(?:\w+\.)+(?=\w+: )", "", " ".join(message.split()))
