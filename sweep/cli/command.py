"""What every command does at its edges: all wrong options at once, one style of errors, no traceback for a bad file."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource, iter_params_for_processing

from sweep.errors import Mistake, SweepError, file_mistake
from sweep.files import check_regular, check_writable
from sweep.library.sources import opened, readable

_NO_NUMBER = re.compile(r"is not a valid (integer|float)(?: range)?$")
"""how click names a value that is no number"""
HELP = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""raised by click 8.2 and later where a group is called without a command"""


class SweepCommand(click.Command):
    """A command of `sweep`: every one is of this class."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's, but all options that are wrong are reported at once. Raises SweepError."""
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except HELP:
            raise
        except click.UsageError as error:
            raise SweepError(self._mistakes(ctx, words) or usage_mistake(error)) from error
        except SweepError as error:
            raise SweepError(self._mistakes(ctx, words) or error.mistakes) from error

    def _mistakes(self, ctx: click.Context, args: list[str]) -> list[Mistake]:
        """What is wrong with each option and argument; none if the words cannot be parsed."""
        try:
            given, rest, order = self.make_parser(ctx).parse_args(args=args)
        except click.UsageError:
            return []
        mistakes: list[Mistake] = []
        for param in iter_params_for_processing(order, self.get_params(ctx)):
            try:
                _, rest = param.handle_parse_result(ctx, given, rest)
            except click.UsageError as error:
                mistakes.append(usage_mistake(error))
            except SweepError as error:
                mistakes += error.mistakes
        words = ", ".join(repr(word) for word in rest)
        remedy = f"`{ctx.command_path} --help`"
        return mistakes + ([Mistake(f"unexpected: {words}", remedy=remedy)] if rest else [])


class InputPath(click.Path):
    """Something to read: a file or a directory. What exists must be readable; what is missing the command reports."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path. Raises SweepError where it cannot be read."""
        return readable(str(super().convert(value, param, ctx)))


class SourcePath(InputPath):
    """A sweep to read: its directory, its archive (then a directory while this command runs), or a results file."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path. Raises SweepError where it cannot be read."""
        return opened(super().convert(value, param, ctx))


class OutputPath(click.Path):
    """A file (or a ``directory``) to create or replace: refused before any work if it cannot be written."""

    def __init__(self, *, directory: bool = False, endings: Sequence[str] = ()) -> None:
        super().__init__(path_type=Path)
        self.directory = directory
        self.endings = endings
        """those that the file's name may have; empty: any"""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path. Raises SweepError where it cannot be written."""
        path = Path(str(super().convert(value, param, ctx)))
        if self.endings and path.suffix.lower() not in self.endings:
            self.fail(f"unknown kind of file (end the name in {', '.join(self.endings)})", param, ctx)
        try:
            check_writable(path)
        except OSError as error:
            from sweep.store.directory import SweepDir
            from sweep.store.sharing import check_mine

            with contextlib.suppress(OSError):
                if SweepDir(path).provenance.is_file():
                    check_mine(path)
            raise SweepError(file_mistake(error) or str(error)) from error
        if path.exists():
            check_regular(path)  # a device would be replaced by a file
        if path.exists() and path.is_dir() != self.directory:
            words = ("a file", "a directory") if self.directory else ("a directory", "a file")
            raise SweepError(Mistake(f"is {words[0]}, not {words[1]}", file=str(path), remedy=f"name {words[1]}"))
        return path


def refuse(names: Sequence[str], why: str, *others: Mistake) -> None:
    """Raises SweepError where the user gave one of these parameters, which have no effect ("without X"), or there are
    ``others``.
    """
    ctx = click.get_current_context()
    mistakes = [
        Mistake(f"has no effect {why}", path=_name(param), remedy="omit it")
        for param in ctx.command.params
        if param.name in names and ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
    ]
    if mistakes or others:
        raise SweepError([*mistakes, *others])


def usage_mistake(error: click.UsageError) -> Mistake:
    """Click's message in the style of all others: where, what, the remedy."""
    if isinstance(error, click.MissingParameter) and error.param is not None:
        kind = "argument" if isinstance(error.param, click.Argument) else "option"
        return Mistake(f"this {kind} is missing", path=_name(error.param), remedy=_help(error))
    fact = (error.message if isinstance(error, click.BadParameter) else error.format_message()).rstrip(".")
    fact = _NO_NUMBER.sub(lambda found: "is not a whole number" if found[1] == "integer" else "is not a number", fact)
    if isinstance(error, click.NoSuchOption):
        near = error.possibilities or ()
        remedy = f"did you mean {' or '.join(sorted(near))}?" if near else _help(error)
        return Mistake("no such option", path=error.option_name, remedy=remedy)
    if isinstance(error, click.BadParameter) and error.param is not None:
        return Mistake(fact, path=_name(error.param))
    return Mistake(fact, remedy=None if fact.endswith(")") else _help(error))


def _name(param: click.Parameter) -> str:
    if isinstance(param, click.Option):
        return next((word for word in param.opts if word.startswith("--")), param.opts[0])
    return (param.metavar or str(param.name).upper()).strip("[].")


def _help(error: click.UsageError) -> str | None:
    return f"`{error.ctx.command_path} --help`" if error.ctx is not None else None
