"""The entry point `sweep`: loads a command's file only when that command is called."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

import click

from sweep.cli.command import HELP, usage_mistake
from sweep.cli.terminal import guard
from sweep.errors import Mistake, SweepError, file_mistake, nearest
from sweep.plugins import load_object
from sweep.version import __version__

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Start": {
        "demo": ("sweep.cli.launch:demo", "Measure two tiny models on this machine and draw the heatmap."),
        "init": ("sweep.cli.init:init", "Write a commented grid and site to start from."),
        "doctor": ("sweep.cli.doctor:doctor", "Check cluster health and measure component speed."),
    },
    "Plan": {
        "plan": ("sweep.cli.plan:plan", "Show a grid's runs, rejections, predicted best and cost."),
        "memory": ("sweep.cli.memory:memory", "Predict a layout's memory per GPU, or list the layouts that fit."),
        "size": ("sweep.cli.size:size", "Estimate GPUs and time, and where adding GPUs stops paying off."),
    },
    "Run": {
        "launch": ("sweep.cli.launch:launch", "Measure every run of a grid. Safe to kill; run again to resume."),
        "resume": ("sweep.cli.launch:resume", "Continue with runs that are missing or may be retried."),
        "status": ("sweep.cli.status:status", "Show what ran, what runs, and what failed and why."),
        "cancel": ("sweep.cli.launch:cancel", "Stop all jobs and processes of a sweep, and record it."),
        "rerun": ("sweep.cli.requests:rerun", "Measure chosen runs again, as a further attempt of each."),
        "nodes": ("sweep.cli.requests:nodes", "List nodes and why some are excluded; exclude or release one."),
    },
    "Answer": {
        "collect": ("sweep.cli.results:collect", "Write all records to results.parquet."),
        "best": ("sweep.cli.best:best", "List or export the best configuration of each cell."),
        "heatmap": ("sweep.cli.results:heatmap", "Draw the best configuration per model and node count."),
        "report": ("sweep.cli.results:report", "Write one HTML page with results, confidence and all data."),
        "compare": ("sweep.cli.compare:compare", "Find significant changes between sweeps, or check a baseline."),
    },
    "Explain": {
        "explain": ("sweep.cli.explain:explain", "Explain why a run ended as it did, and what to try."),
        "logs": ("sweep.cli.logs:logs", "Print the output of an attempt or of a pilot."),
    },
    "Exchange": {
        "import": ("sweep.cli.exchange:import_results", "Convert a table of results from elsewhere."),
        "track": ("sweep.cli.exchange:track", "Send results to Weights & Biases or MLflow."),
        "archive": ("sweep.cli.exchange:archive", "Pack a sweep into one file without secrets, or open one."),
    },
}
"""section of `sweep --help` -> command -> ("module:attribute", its line there)"""
COMMANDS = {name: command for section in SECTIONS.values() for name, command in section.items()}


class _LazyGroup(click.Group):
    """Lists commands without importing them, so that `sweep --help` is quick."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's; an unknown command gets the nearest. Raises SweepError."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            remedy = nearest(args[0], self.list_commands(ctx))
            raise SweepError(Mistake(f"no such command {args[0][:60]!r}", remedy=remedy)) from error

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        place, line = COMMANDS[cmd_name]
        command: click.Command = load_object(place)
        command.short_help = line  # a shell's completion shows it
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        width = max(map(len, COMMANDS))  # the same column in every section
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, (_, text) in section.items()])


@click.command(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sweep")
def cli() -> None:
    """Find the fastest parallel configuration for every model size on every cluster size.

    \b
    Examples:
      sweep plan examples/ultrascale.yaml
      sweep launch examples/laptop.yaml
      sweep status
      sweep heatmap
    """


def _print(mistakes: Sequence[Mistake]) -> None:
    for mistake in mistakes:
        click.echo(f"error: {mistake}", err=True)


def main() -> None:
    """Run the command line. Exit 0 done, 1 the work failed, 2 wrong input, 130 interrupted, 141 output closed."""
    os.umask(0o077)  # only the user may read a sweep's files
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # while a caller's SIG_IGN holds, every exit code reads as 0
    guard()
    try:
        code = _call()
    except BrokenPipeError:  # the reader of our output ended first, as `head` does
        code = 128 + signal.SIGPIPE
    sys.exit(code)


def _call() -> int:
    """The exit code of the command that the arguments name, after its errors are printed."""
    try:
        code = cli(prog_name="sweep", standalone_mode=False, color=True)  # the filter leaves nothing to strip
    except SweepError as error:
        _print(error.mistakes)
        return error.exit_code
    except (click.exceptions.Abort, KeyboardInterrupt):
        return 130
    except click.ClickException as error:
        if isinstance(error, click.UsageError) and not isinstance(error, HELP):
            _print([usage_mistake(error)])
        else:
            error.show()
        return error.exit_code
    except OSError as error:  # a file that cannot be read or written is the user's
        if isinstance(error, BrokenPipeError) or (mistake := file_mistake(error)) is None:
            raise
        _print([mistake])
        return SweepError.exit_code
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    main()
