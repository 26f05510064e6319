"""`sweep init`: a commented grid and site to start from, for this cluster or machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli.command import OutputPath, SweepCommand, without_effect
from sweep.cli.names import GPU_NAMES, name_option
from sweep.cli.options import json_option
from sweep.cli.progress_text import plural
from sweep.errors import Mistake, SweepError
from sweep.stated import shell_word

if TYPE_CHECKING:
    from sweep.inputs.detect import NodeGroup

NAMES = ("grid.yaml", "site.yaml")
OTHERS_SHOWN = 12


@click.command(cls=SweepCommand)
@click.argument("directory", metavar="[DIR]", default=".", type=OutputPath(directory=True))
@click.option(
    "--executor", type=click.Choice(["slurm", "local"]), help="Default: slurm if its controller answers, else local."
)
@name_option("--gpu", kind="GPU kind", names=GPU_NAMES, help="GPU type, if it cannot be detected.")
@click.option("--schema", is_flag=True, help="Print the grid's JSON schema, for editors, and write nothing.")
@json_option
def init(directory: Path, executor: str | None, gpu: str | None, schema: bool, as_json: bool) -> int:
    """Write grid.yaml, a small first grid, and site.yaml, with what was detected, to DIR (default: this directory).

    All other keys are there too, commented out and explained. No existing file is overwritten.

    \b
    Examples:
      sweep init
      sweep init scaling --gpu h100
      sweep init scaling --executor local
      sweep init --schema > grid.schema.json
    """
    if schema:
        if useless := without_effect(["directory", "executor", "gpu", "as_json"], "with --schema"):
            raise SweepError(useless)
        from sweep.inputs.grid import json_schema

        click.echo(json.dumps(json_schema(), indent=2))
        return 0
    from sweep.inputs.detect import detect_site, other_partitions
    from sweep.inputs.load import choose_executor
    from sweep.inputs.starter_files import grid_text, site_text

    if taken := [_taken(directory / name) for name in NAMES if (directory / name).exists()]:
        raise SweepError(taken)
    chosen = choose_executor(executor)
    facts = detect_site(chosen, gpu)
    others = other_partitions(facts.get("partition")) if chosen == "slurm" else []
    texts = (grid_text(facts), site_text(facts, [_remark(group) for group in others[:OTHERS_SHOWN]]))
    grid, site = _write(directory, texts)
    if as_json:
        click.echo(json.dumps({"grid": str(grid), "site": str(site), "executor": chosen, "detected": dict(facts)}))
        return 0
    click.echo(f"{grid}\n{site}", err=True)
    words = f"{shell_word(str(grid))} --site {shell_word(str(site))}"
    click.echo(f"check both, then `sweep plan {words}` and `sweep launch {words}`", err=True)
    return 0


def _taken(path: Path) -> Mistake:
    return Mistake("exists, and is not overwritten", file=str(path), remedy="name another directory: `sweep init DIR`")


def _remark(group: NodeGroup) -> str:
    limit = "no time limit" if group.time_limit_s is None else f"at most {group.time_limit_s // 60} min"
    gpus = f"{group.gpus} GPUs {group.gpu_type}".rstrip() if group.gpus else "no GPUs"
    return f"also up: partition {group.partition}, {plural(group.nodes, 'node')}, {gpus} each, {limit}"


def _write(directory: Path, texts: tuple[str, str]) -> tuple[Path, Path]:
    """Both files. Raises SweepError if one was created meanwhile."""
    from sweep.files import write_new

    paths = directory / NAMES[0], directory / NAMES[1]
    try:
        write_new(dict(zip(paths, texts, strict=True)))
    except FileExistsError:
        raise SweepError(_taken(next(path for path in paths if path.exists()))) from None
    return paths
