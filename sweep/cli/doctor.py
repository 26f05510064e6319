"""`sweep doctor`: is this cluster fit to be measured, and how fast are its parts."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli.command import OutputPath, SweepCommand
from sweep.cli.options import json_option, site_option

if TYPE_CHECKING:
    from sweep.doctor.report import Report

TIERS = ("login", "node", "perf", "pair", "whole")


@click.command(cls=SweepCommand, short_help="Is this cluster fit to be measured, and how fast are its parts.")
@site_option
@click.option("--tier", "tiers", type=click.Choice(TIERS), multiple=True, help="Default: login and node. Repeatable.")
@click.option("--executor", type=click.Choice(["slurm", "local"]), help="Default: slurm if its controller answers.")
@click.option(
    "--dir",
    "directory",
    type=OutputPath(directory=True),
    default=Path("doctor"),
    show_default=True,
    help="Where reports go.",
)
@json_option
def doctor(site_given: str | None, tiers: tuple[str, ...], executor: str | None, directory: Path, as_json: bool) -> int:
    """Check the login node and the nodes before they are measured. Exit 1 if something is unfit.

    \b
    Examples:
      sweep doctor --tier login
      sweep doctor --site h100.yaml --nodes 8
    """
    from sweep.doctor.login import check_login
    from sweep.doctor.report import Report
    from sweep.inputs.load import choose_executor, load_site

    chosen = choose_executor(executor)
    site = load_site(given=site_given, executor=chosen)
    began_at, began = time.time(), time.monotonic()
    found = check_login(site, chosen, directory)
    report = Report(
        site=site.name,
        gpu=site.gpu,
        nodes=(),
        results=tuple(found),
        began_at=began_at,
        seconds={"login": time.monotonic() - began},
    )
    show(report, as_json=as_json)
    return 0 if report.fit else 1


def show(report: Report, *, as_json: bool) -> None:
    """The table on stdout and a summary on stderr, or one JSON document."""
    from sweep.doctor.report import summary

    if as_json:
        click.echo(json.dumps(report.as_json()))
    else:
        _table(report)
    click.echo(summary(report), err=True)
    for node, why in report.exclude.items():
        click.echo(f"exclude {node}: {why}", err=True)


def _table(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table

    from sweep.doctor.report import groups, nodes_text

    colours = {"ok": "green", "warning": "yellow", "unknown": "yellow"}
    table = Table(box=None, pad_edge=False, expand=True)
    for heading, share in (("check", 2), ("verdict", 2), ("node", 2), ("found", 5), ("expected", 4), ("remedy", 5)):
        table.add_column(heading, overflow="fold", ratio=share)
    for one, nodes in groups(report.results):
        verdict = str(one.finding.verdict)
        colour = colours.get(verdict, "red")
        cells = (one.finding.found, one.finding.expected, one.remedy)
        table.add_row(one.check, f"[{colour}]{verdict}[/]", nodes_text(nodes), *map(_plain, cells))
    Console(highlight=False, width=None if sys.stdout.isatty() else 160).print(table)


def _plain(text: str) -> str:
    """Text that rich must not read as markup."""
    return text.replace("[", "\\[")
