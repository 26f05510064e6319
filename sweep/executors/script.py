"""The batch script of a pilot, from the site and the request. Pure: the only file it reads is its own template.

The caller decides what runs (``command``); the template decides how it is requested from Slurm.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sweep.errors import Mistake, SweepError
from sweep.files import shipped_folder
from sweep.stated import shell_word

if TYPE_CHECKING:
    from jinja2 import Environment

    from sweep.executors.executor import PilotRequest
    from sweep.inputs.site import Site

PILOT_TEMPLATE = "pilot.sbatch.j2"
SHORTEST_WITH_WARNING_S = 300
"""Slurm may send the warning signal up to 60 s early (man sbatch, --signal): useless for shorter pilots,
and fatal to one whose leader has not installed its handler yet"""
_PLAIN = re.compile(r"[A-Za-z0-9_./:,@%+=-]+")
_LINE_BREAK = re.compile(r"[\n\r\0]")
_MEMORY_OPTIONS = ("--mem", "--mem-per-cpu", "--mem-per-gpu")
_GPU_OPTIONS = ("--gres", "--gpus", "--gpus-per-node", "--tres-per-node", "--gpus-per-task")


def render_pilot(
    site: Site,
    request: PilotRequest,
    folder: str,
    *,
    command: str,
    before: Sequence[str] = (),
    further: Sequence[str] = (),
) -> str:
    """The whole sbatch script of one pilot.

    ``folder``: of the pilot, for its output. ``command`` is a shell command that replaces the script's shell;
    ``before`` are shell lines ahead of it. Both come quoted. ``further``: options of sbatch. Raises SweepError with
    every value that a script cannot hold.
    """
    options = [*options_of(site, request.exclude), *further]
    given = [("token", request.token), ("folder", folder), *(("option", line) for line in options)]
    mistakes = [
        Mistake(f"{name} {value!r} cannot be in a batch script", file=folder, remedy="remove its line breaks")
        for name, value in given
        if _LINE_BREAK.search(value)
    ]
    if mistakes:
        raise SweepError(mistakes)
    return (
        _environment()
        .get_template(PILOT_TEMPLATE)
        .render(
            site=site,
            setup=setup_lines(site),
            request=request,
            warning_s=warning_s(request.time_limit_s),
            options=options,
            folder=folder,
            before=before,
            command=command,
        )
    )


def setup_lines(site: Site) -> list[str]:
    """The site's set-up lines, which end the pilot if they take too long: it holds its nodes meanwhile.

    A command of them that fails is named, and the next one runs, as in a shell: a file that is sourced may have tests
    that fail. The process that watches them has another parent, so that a `wait` among them does not wait for it.
    """
    if not site.setup:
        return []
    late = shell_word(f"setup did not end within {site.setup_time:g} s (setup_time of the site): the pilot ends")
    ended = "trap 'kill $! 2>/dev/null; exit' TERM"
    watch = f"{ended}; sleep {site.setup_time:g} & wait $! && echo {late} >&2 && kill -KILL 0"
    named = "trap 'echo \"setup: exit status $? of: $BASH_COMMAND\" >&2' ERR"
    begun, done = f"sweep_setup=$( ( {watch} ) >/dev/null & echo $!)", 'kill "$sweep_setup" 2>/dev/null || :'
    return [begun, named, *site.setup, "trap - ERR", done]


def options_of(site: Site, exclude: Iterable[str] = ()) -> list[str]:
    """What the site's nodes are requested with, in any job: sbatch's options, quoted for `#SBATCH` lines.

    ``exclude``: further nodes to leave out, besides those of the site's own --exclude: sbatch uses only the last one.
    """
    own = [(*re.split(r"[= ]", line.strip(), maxsplit=1), line) for line in site.sbatch]
    names = {words[0] for words in own}
    excluded = [words[1] for words in own if words[0] == "--exclude"] + sorted(exclude)
    values: dict[str, object | None] = {
        "mem": 0 if names.isdisjoint(_MEMORY_OPTIONS) else None,
        "ntasks-per-node": 1 if "--ntasks-per-node" not in names else None,
        "partition": site.partition,
        "account": site.account,
        "qos": site.qos,
        "reservation": site.reservation,
        "constraint": site.constraint,
        "nice": site.nice,
        "exclude": ",".join(excluded) or None,
        # --gres and not --gpus-per-node: every select plugin supports it.
        "gres": f"gpu:{site.gpus_per_node}" if site.gpu != "cpu" and names.isdisjoint(_GPU_OPTIONS) else None,
    }
    named = [f"--{name}={sbatch_quote(value)}" for name, value in values.items() if value is not None]
    return [*named, *(words[-1] for words in own if words[0] != "--exclude")]


def segment_option(segment: int | None, nodes: int, plugin: str, version: str) -> list[str]:
    """How a pilot of so many nodes asks for segments. ``plugin``, ``version``: of this Slurm, empty: not known.

    Raises SweepError where this Slurm cannot, or where the nodes are not made of whole segments.
    """
    if segment is None:
        return []
    kind, size = plugin.rpartition("/")[2], min(segment, nodes)
    if kind == "tree":
        return [f"--switches={-(-nodes // size)}"]
    old = tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < (24, 5)  # man sbatch of 23.11 and of 24.05
    facts = {
        f"Slurm's plug-in {plugin} knows neither segments nor switches": plugin and kind not in ("block", "ring"),
        f"Slurm {version} has no --segment": version and old,
        f"a pilot of {nodes} nodes is not made of whole segments of {segment}": nodes % size,
    }
    if found := next((fact for fact, holds in facts.items() if holds), None):
        remedy = "leave it out, or make all node counts above it its multiples"
        raise SweepError(Mistake(found, path="site.segment", remedy=remedy))
    return [f"--segment={size}"]


def warning_s(time_limit_s: int) -> int:
    """How long before its end a pilot is warned, in seconds: a twentieth of its time, 60 s to 5 min. 0: never."""
    if time_limit_s < SHORTEST_WITH_WARNING_S:
        return 0
    return min(300, max(60, time_limit_s // 20))


def sbatch_quote(value: object) -> str:
    """The value quoted for an #SBATCH line. Not a shell's rules: a backslash escapes inside quotes of either kind too
    (``_get_argument`` in Slurm's src/sbatch/opt.c).
    """
    text = str(value)
    if _PLAIN.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def slurm_path(value: object) -> str:
    """A path on an #SBATCH line, taken literally: Slurm replaces %j and the like. It must have no backslash: 22.05
    reads two as one, 25.11 leaves all out (``fname_create`` in src/slurmd, ``expand_stdio_fields`` in src/common).
    """
    return sbatch_quote(str(value).replace("%", "%%"))


def slurm_time(seconds: int) -> str:
    """D-HH:MM:SS."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{days}-{hour:02}:{minute:02}:{second:02}"


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(shipped_folder("templates")),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 (shell, not HTML: every value goes through a quoting filter)
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters = (shell_word, sbatch_quote, slurm_path, slurm_time)
    environment.filters.update({function.__name__: function for function in filters})
    return environment
