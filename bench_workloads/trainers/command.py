"""Any command: a jinja2 command line, an optional configuration file, and named patterns that parse its output."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from bench_workloads.decoder import where
from bench_workloads.trainers.adapter import PLAIN_NAME, Adapter, Launch, Reader, TrainerParameters, param
from bench_workloads.trainers.driver import trainer
from bench_workloads.trainers.driver.reading import ITERATION, NUMBER, UNITS, JsonReader, PatternReader, number
from bench_workloads.trainers.driver.templates import render, renders, variables
from sweep.contract import FILE, LAYOUT_FIELDS, Rule, Run, Scalar

_STATED = frozenset(
    {
        *LAYOUT_FIELDS,
        "gpus",
        "world_size",
        "nodes",
        "sequence_length",
        "global_batch_tokens",
        "global_batch_sequences",
        "dtype",
    }
)
"""metric names that are compared with the requested layout"""
_FURTHER = ("a", "b", "c", "directory", "config")
_UNREADABLE = (
    "params.metrics cannot be read: {metrics!r}. Needed are lines `name: regular expression with one group` of known "
    "names, one of them `iteration`"
)


def configure(run: Run, directory: str, steps: int) -> Launch:
    """The command line and the configuration, rendered. Raises ValueError for an invalid template."""
    template = param(WORKLOAD, run, "config", str)
    name = param(WORKLOAD, run, "config_name", str)
    own = {key: param(WORKLOAD, run, key, str) for key in ("a", "b", "c")}
    values = {**variables(run, steps), **own, "directory": directory, "config": str(Path(directory) / name)}
    if template.startswith(FILE):
        raise ValueError(f"config is a file's name, {template[:80]!r}: its text is read when a grid is launched")
    files = {name: render(run, template, values, quoted=False)} if template else {}
    words = shlex.split(render(run, param(WORKLOAD, run, "command", str), values, quoted=True))
    if words and words[0] == "python":
        return Launch(program=tuple(words[1:]), files=files, workdir=".")
    return Launch(program=tuple(words), files=files, python=False, workdir=".")


def reader(run: Run) -> Reader:
    """The reader described by ``metrics``. Raises ValueError."""
    return reader_of(param(WORKLOAD, run, "metrics", str))


def expected(run: Run) -> dict[str, str]:
    """What ``metrics`` names besides the iteration: our name -> the name given there."""
    given = [name for name in metrics_of(param(WORKLOAD, run, "metrics", str)) if name != ITERATION]
    return {UNITS[name][0] if name in UNITS else name: name for name in given}


def iteration(run: Run) -> str:
    """What ``metrics`` states for the iteration, as it was written."""
    return metrics_of(param(WORKLOAD, run, "metrics", str))[ITERATION].replace(f"({NUMBER})", "{number}")


def reader_of(text: str) -> Reader:
    """The reader described by a text of ``metrics``. Raises ValueError."""
    found = metrics_of(text)
    if _is_json(text):
        return JsonReader(found)
    stated = {name: (found[name], _plain) for name in found if name in _STATED}
    values = {name: found[name] for name in found if name in UNITS}
    return PatternReader(found[ITERATION], values, stated)


def _is_json(text: str) -> bool:
    return text.split()[:1] == ["json"]


def metrics_of(text: str) -> dict[str, str]:
    """What ``json`` and pairs name=key, or lines ``name: regular expression with one group`` state. Raises ValueError.

    In an expression ``{number}`` matches a number as trainers write it.
    """
    found: dict[str, str] = {}
    for word in text.split()[1:] if _is_json(text) else ():
        name, equals, key = word.partition("=")
        found[name] = key if equals else name
    for line in filter(None, map(str.strip, text.splitlines())) if not _is_json(text) else ():
        name, colon, expression = line.partition(":")
        if not colon or not expression.strip():
            raise ValueError(f"invalid value for metrics: {line!r} is no `name: expression`")
        found[name.strip()] = expression.strip().replace("{number}", f"({NUMBER})")
    known = {ITERATION, *UNITS, *_STATED}
    unknown = sorted(set(found) - known)
    if unknown:
        raise ValueError(
            f"invalid value for metrics: unknown {', '.join(unknown)}; known are {', '.join(sorted(known))}"
        )
    if ITERATION not in found:
        raise ValueError("invalid value for metrics: `iteration` is missing")
    return found


def _plain(text: str) -> Scalar:
    value = number(text)
    if value is None:
        return text
    return int(value) if value.is_integer() else value


def _problem_of_metrics(text: str) -> bool:
    try:
        reader_of(text)
    except ValueError:
        return True
    return False


@dataclass(frozen=True, kw_only=True)
class Settings(TrainerParameters):
    """The parameters of a command line."""

    command: str = ""
    """the command line, a jinja2 template"""
    config: str = ""
    """text of a configuration file, also a template; or `@FILE`, which is read when the grid is"""
    config_name: str = "config.yaml"
    """its name; `{{ config }}` is its path"""
    metrics: str = ""
    """how the output is parsed: lines `name: regular expression`, or `json name=key …`"""
    frozen_weights: bool = False
    """the script trains adapters only (LoRA)"""
    same_start: bool = False
    """the script has the same weights and data in every layout: losses must agree as those of `transformer`"""
    a: str = ""
    """an axis of your own"""
    b: str = ""
    """another"""
    c: str = ""
    """another"""


WORKLOAD = trainer(
    Settings,
    axes=frozenset({*LAYOUT_FIELDS, "dtype", "compile"}),
    preload=("jinja2",),
    texts=frozenset({"config"}),
    rules=(
        Rule("command", where("command", lambda text: not text.strip()), "params.command names no command line"),
        Rule(
            "command_template",
            where("command", lambda text: not renders(text, _FURTHER)),
            "params.command is no jinja2 template of names that a run has: {command}",
        ),
        Rule(
            "config_template",
            where("config", lambda text: not renders(text, _FURTHER)),
            "params.config is no jinja2 template of names that a run has",
        ),
        Rule(
            "config_name",
            where("config_name", lambda text: not PLAIN_NAME.fullmatch(text)),
            "params.config_name is no plain name of a file: {config_name!r}",
        ),
        Rule("metrics", where("metrics", _problem_of_metrics), _UNREADABLE),
    ),
)
ADAPTER = Adapter(
    workload=WORKLOAD,
    configure=configure,
    reader=reader,
    expected=expected,
    iteration=iteration,
)
