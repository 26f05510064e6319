"""`sweep doctor`: check cluster health and measure component speed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli.command import SweepCommand
from sweep.cli.names import directory_option, executor_option, json_option, site_option
from sweep.cli.terminal import console
from sweep.errors import Mistake, SweepError

if TYPE_CHECKING:
    from sweep.checks.speeds import Answer
    from sweep.doctor.report import Report
    from sweep.inputs.site import Site

TIERS = ("login", "node", "perf", "pair", "all-nodes")
"""in the order in which they run"""
USUAL = TIERS[:2]
COLOURS = {"ok": "green", "warning": "yellow", "unknown": "yellow"}


@click.command(cls=SweepCommand)
@site_option
@click.option(
    "--tier",
    "tiers",
    type=click.Choice([*TIERS, "all"]),
    multiple=True,
    help="What to check. Default: login and node. Repeatable.",
)
@click.option(
    "--nodes", "nodes_given", help="Number of nodes or their names: 8, or n1,n2,n7. Default: max_nodes of the site."
)
@executor_option
@directory_option("Directory for the reports.", Path("doctor"))
@json_option
def doctor(
    site_given: str | None,
    tiers: tuple[str, ...],
    nodes_given: str | None,
    executor: str | None,
    directory: Path,
    as_json: bool,
) -> int:
    """Check the health of the login node and the compute nodes, and measure component speed.

    Exits with 1 if a node or the cluster is unfit.

    \b
    Examples:
      sweep doctor --tier login
      sweep doctor --site h100.yaml --nodes 8
      sweep doctor --site h100.yaml --tier perf --tier pair --nodes n1,n2,n7
    """
    from sweep.doctor.doctor import DoctorOptions, examine
    from sweep.inputs.load import choose_executor, load_site, site_path

    chosen = choose_executor(executor)
    site = load_site(given=site_given, executor=chosen)
    count, names = _nodes(nodes_given, site, chosen)
    asked = TIERS if "all" in tiers else tuple(tier for tier in TIERS if tier in (tiers or USUAL))
    options = DoctorOptions(
        site=site,
        site_file=None if site_given is None else site_path(site_given),  # what was measured goes next to it
        executor=chosen,
        tiers=asked,
        nodes=count,
        names=names,
    )
    report = examine(options, directory, _Progress())
    _show(report, as_json=as_json)
    return 0 if report.fit else 1


def _nodes(given: str | None, site: Site, executor: str) -> tuple[int, tuple[str, ...]]:
    """(how many, their names). Raises SweepError where it is neither."""
    if given is None:
        return (site.max_nodes or 1), ()
    if given.isdecimal() and int(given) > 0:
        return int(given), ()
    names = tuple(name for name in given.split(",") if name)
    if not names or executor == "local" or not all(name[0].isalpha() for name in names):
        remedy = "a number, such as 8" if executor == "local" else "a number, or names such as n1,n2,n7"
        raise SweepError(Mistake(f"{given!r} names no nodes", path="--nodes", remedy=remedy))
    return len(names), names


class _Progress:
    """One line for each thing that became known, on stderr."""

    def __init__(self) -> None:
        self._shown = 0

    def __call__(self, answers: Sequence[Answer]) -> None:
        for one in answers[self._shown :]:
            kind = one["kind"]
            if kind == "nodes":
                missing = f"; without an answer: {', '.join(one['missing'])}" if one["missing"] else ""
                click.echo(f"nodes: {', '.join(one['nodes'])}{missing}", err=True)
            elif kind == "tier":
                click.echo(f"{one['tier']}: done in {one['seconds']} s", err=True)
            elif kind == "exchange" and one["problem"]:
                click.echo(f"{one['tier']}: {', '.join(one['nodes'])}: {one['problem']}", err=True)
        self._shown = len(answers)


def _show(report: Report, *, as_json: bool) -> None:
    """The table on stdout and a summary on stderr, or one JSON document."""
    from sweep.doctor.report import summary

    if as_json:
        click.echo(json.dumps(report.as_json()))
    else:
        _table(report)
    click.echo(summary(report), err=True)
    for node, why in report.exclude.items():
        click.echo(f"exclude {node}: {why}", err=True)
    for place in report.written:
        click.echo(f"written: {place}", err=True)


def _table(report: Report) -> None:
    from rich.table import Table
    from rich.text import Text

    from sweep.doctor.report import groups, nodes_text

    table = Table(box=None, pad_edge=False, expand=True)
    for heading, share in (("check", 3), ("verdict", 2), ("node", 2), ("found", 5), ("expected", 4), ("remedy", 5)):
        table.add_column(heading, overflow="fold", ratio=share)
    for one, nodes in groups(report.results):
        verdict = str(one.finding.verdict)
        cells = (one.finding.found, one.finding.expected, one.remedy)
        coloured = Text(verdict, style=COLOURS.get(verdict, "red"))
        table.add_row(one.check, coloured, nodes_text(nodes, len(report.nodes)), *cells)
    console(width=160).print(table)
