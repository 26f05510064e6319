"""Options and arguments whose values are names: checked with all other options, listed in help, completed by tab.

The names are loaded only when they are needed: some come from plug-ins, others from modules with heavy imports.

Options that several commands share.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from sweep.cli.command import InputPath, OutputPath
from sweep.errors import SweepError, nearest
from sweep.plugins import load_object

if TYPE_CHECKING:
    from click.decorators import FC


Names = Callable[[], Iterable[str]]
METRIC_NAMES: Names = functools.partial(load_object, "analysis.metrics:METRICS")
GPU_NAMES: Names = functools.partial(load_object, "sweep.physics.hardware:GPUS")
MODEL_NAMES: Names = functools.partial(load_object, "sweep.physics.catalogue:MODELS")
TEMPLATE_NAMES: Names = functools.partial(load_object, "sweep.inputs.starter_files:SITE_TEMPLATES")
TRAINER_NAMES: Names = functools.partial(load_object, "sweep.physics.profiles:PROFILES")
"""those whose memory and speed are predicted"""


class OneOf(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # click 8.1's takes no argument
    """One of some names. ``kind``: what they are, for messages."""

    name = "name"

    def __init__(self, kind: str, names: Names, aliases: Mapping[str, str] | None = None) -> None:
        self.kind = kind
        self.names = names
        self._aliases = aliases or {}

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name; click reports one that is unknown, with the nearest or all."""
        known = {name.lower(): name for name in self.names()}
        value = self._aliases.get(value, value)
        if value.lower() not in known:
            self.fail(f"unknown {self.kind} {value[:60]!r} ({nearest(value, known.values())})", param, ctx)
        return known[value.lower()]

    def shell_complete(self, _ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The names that begin so."""
        return [CompletionItem(name) for name in self.names() if name.startswith(incomplete)]


class _NameOption(click.Option):
    """Its help ends with all names."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        if record is None or not isinstance(self.type, OneOf):
            return record
        words, text = record
        text, bracket, default = text.partition("  [")
        return words, f"{text} One of: {', '.join(self.type.names())}.{bracket}{default}".strip()


def name_option(*declarations: str, kind: str, names: Names, **values: Any) -> Callable[[FC], FC]:
    """As ``click.option``, for a value that is one of ``names``: see ``OneOf``."""
    return click.option(*declarations, cls=_NameOption, type=OneOf(kind, names), **values)


def metric_option(text: str = "Metric that ranks the configurations.") -> Callable[[FC], FC]:
    """--metric of the commands that rank configurations; `--objective job` is that of a job with failures."""
    default = "tokens_per_second_per_gpu"  # DEFAULT_METRIC of analysis.metrics, without its imports
    known = OneOf("metric", METRIC_NAMES, {"job": "job_tokens_per_gpu_day", "step": default})
    names = ("--metric", "--objective")
    return click.option(*names, cls=_NameOption, type=known, default=default, show_default=True, help=text)


def complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """run_ids of the sweep that the words before name, else of the newest one; and paths, where one may stand."""
    stated = (ctx.params.get("directory"), *(ctx.params.get("words") or ()))
    before = [str(word) for word in stated if word is not None and str(word)]
    may_be_path = param.name in ("directory", "words") and not before
    paths = [CompletionItem(incomplete, type="file")] if may_be_path else []
    from sweep.store.directory import find_sweep
    from sweep.store.sweep import open_sweep

    found = []
    with contextlib.suppress(SweepError, OSError):  # where no sweep can be read, a completion reports nothing
        named = Path(before[0]) if before and Path(before[0]).is_dir() else None
        found = [run.run_id for run in open_sweep(find_sweep(named).path).runs]
    return [CompletionItem(run_id) for run_id in found if incomplete in run_id] + paths


class FiniteRange(click.FloatRange):
    """Numbers of a range. Click's has NaN in every range, and infinity where no end is stated."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Converts to a number; click reports values that are not one."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


class Amount(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # click 8.1's takes no argument
    """A number as in a grid. ``name``: count (3B, 11T, 1500000) or share (3%, 3 % or 0.03)."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Converts to a number; click reports values that are not one."""
        from sweep.inputs.validation import amount, fraction  # pydantic's import takes a while

        try:
            return amount(value) if self.name == "count" else fraction(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


COUNT, SHARE = Amount("count"), Amount("share")


def directory_option(text: str, default: Path | None = None) -> Callable[[FC], FC]:
    """--dir of the commands that write to a directory."""
    kind, shown = OutputPath(directory=True), default is not None
    return click.option("--dir", "directory", type=kind, default=default, show_default=shown, help=text)


def _keys(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from sweep.inputs.grid import Grid

    return [f"{key}=" for key in Grid.model_fields if key.startswith(incomplete)]


directory_argument = click.argument("directory", metavar="[DIR]", required=False, type=InputPath())
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document on stdout, and nothing else."
)
overrides_option = click.option(
    "-o",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    shell_complete=_keys,
    help="Override a key of the grid, such as -o tp=[1,2]. Repeatable.",
)
executor_option = click.option(
    "--executor", type=click.Choice(["slurm", "local"]), help="Default: slurm if its controller answers, else local."
)
site_option = click.option(
    "--site",
    "site_given",
    metavar="FILE_OR_NAME",
    help="Site file, or the name of one in ~/.config/sweep/sites/. Default: the grid's own site, or what is detected.",
)
anyway_option = click.option(
    "--anyway", is_flag=True, help="Compare even if no run is in both, or if model, sequence length or batch differ."
)
