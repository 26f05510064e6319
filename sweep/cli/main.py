"""The entry point `sweep`: loads a command's file only when that command is called."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

import click

from sweep.cli.command import HELP, SweepGroup, usage_mistake
from sweep.errors import Mistake, SweepError
from sweep.plugins import load_object
from sweep.version import __version__

COMMANDS: dict[str, tuple[str, str]] = {
    "plan": ("sweep.cli.plan:plan", "Expand a grid, reject what cannot work, predict the rest."),
    "demo": ("sweep.cli.demo:demo", "Two tiny models measured on this machine, to a heatmap."),
    "schema": ("sweep.cli.plan:schema", "Print the grid's JSON schema, for editors."),
    "init": ("sweep.cli.init:init", "Write a commented grid and site for this cluster or machine."),
    "doctor": ("sweep.cli.doctor:doctor", "Is this cluster fit to be measured, and how fast are its parts."),
    "launch": ("sweep.cli.launch:launch", "Plan, submit pilots, and watch them to the end."),
    "resume": ("sweep.cli.launch:resume", "Continue exactly what is missing or may be retried."),
    "cancel": ("sweep.cli.launch:cancel", "Stop pilots and ranks; record every attempt."),
    "status": ("sweep.cli.status:status", "What ran, what runs, what failed and why."),
    "collect": ("sweep.cli.results:collect", "Records to results.parquet."),
    "best": ("sweep.cli.best:best", "The best configuration of each cell, as a table."),
    "heatmap": ("sweep.cli.results:heatmap", "Best configuration per model and node count, as a picture."),
    "report": ("sweep.cli.report:report", "One self-contained HTML page: best configurations, confidence, all data."),
    "compare": ("sweep.cli.compare:compare", "Two sweeps cell by cell, with significance; a guard for CI."),
    "history": ("sweep.cli.history:history", "One grid measured several times: what became slower, and since when."),
    "certify": ("sweep.cli.certify:certify", "A suite measured and checked against a baseline: pass or fail."),
    "archive": ("sweep.cli.archive:archive", "One compressed file of a sweep, without secrets."),
    "unarchive": ("sweep.cli.archive:unarchive", "Open an archive of a sweep, for reading."),
    "export": ("sweep.cli.export:export", "The best configuration of each cell: JSON, CSV, a trainer's own format."),
    "track": ("sweep.cli.track:track", "Results to an experiment tracker."),
    "memory": ("sweep.cli.memory:memory", "What a layout needs on a GPU, or every layout that fits."),
    "size": ("sweep.cli.size:size", "How many GPUs for how long, and where more no longer pay off."),
    "nodes": ("sweep.cli.nodes:nodes", "Nodes, their verdicts, quarantine; add, pardon."),
    "import": ("sweep.cli.foreign:import_results", "Foreign results (CSV, Parquet) into the record schema."),
    "predict": ("sweep.cli.predict:predict", "A grid's best layouts as measured runs predict them, with intervals."),
    "logs": ("sweep.cli.logs:logs", "The output of an attempt, or of a pilot."),
    "rerun": ("sweep.cli.rerun:rerun", "Measure runs again, as a further attempt of each."),
    "explain": ("sweep.cli.explain:explain", "Why a run ended as it did, and what to try."),
}
"""name -> ("module:attribute", the line in `sweep --help`)"""


class _LazyGroup(SweepGroup):
    """Lists commands without importing them, so that `sweep --help` is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = load_object(COMMANDS[cmd_name][0])
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


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


def _print_in_any_locale() -> None:
    """Characters that the terminal's encoding lacks (a locale such as en_US, Latin-1) become question marks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _print(mistakes: Sequence[Mistake]) -> None:
    for mistake in mistakes:
        click.echo(f"error: {mistake}", err=True)


def main() -> None:
    """Run the command line. Exit 0 done, 1 the work failed, 2 the input is wrong, 130 interrupted."""
    os.umask(0o077)  # only the user may read a sweep's files
    _print_in_any_locale()
    try:
        code = cli(prog_name="sweep", standalone_mode=False)
    except SweepError as error:
        _print(error.mistakes)
        sys.exit(error.exit_code)
    except (click.exceptions.Abort, KeyboardInterrupt):
        sys.exit(130)
    except HELP as error:
        error.show()
        sys.exit(error.exit_code)
    except click.UsageError as error:
        _print([usage_mistake(error)])
        sys.exit(2)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except BrokenPipeError:  # the reader of our output ended first, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
