"""`sweep init`: a commented grid and site to start from, for this cluster or machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli.command import OutputPath, SweepCommand, refuse
from sweep.cli.names import GPU_NAMES, TEMPLATE_NAMES, executor_option, json_option, name_option
from sweep.errors import SweepError, plural
from sweep.files import taken, write_new
from sweep.stated import shell_word

if TYPE_CHECKING:
    from sweep.inputs.detect import NodeGroup

OTHERS_SHOWN = 12
ELSEWHERE = (
    "No cluster is seen from here: check gpus_per_node; partition, account and max_nodes are still to be stated."
)


@click.command(cls=SweepCommand)
@click.argument("directory", metavar="[DIR]", default=".", type=OutputPath(directory=True))
@executor_option
@name_option("--gpu", kind="GPU kind", names=GPU_NAMES, help="GPU type, if it cannot be detected.")
@name_option(
    "--template", kind="template", names=TEMPLATE_NAMES, help="A site for such a cluster, which may be elsewhere."
)
@click.option("--schema", is_flag=True, help="Print the grid's JSON schema, for editors, and write nothing.")
@json_option
def init(
    directory: Path, executor: str | None, gpu: str | None, template: str | None, schema: bool, as_json: bool
) -> int:
    """Write grid.yaml, a small first grid, and site.yaml, with what was detected, to DIR (default: this directory).

    All other keys are there too, commented out and explained. No existing file is overwritten. For a cluster that this
    machine does not reach: --gpu KIND, or a whole site to change with --template.

    \b
    Examples:
      sweep init
      sweep init scaling --gpu h100
      sweep init scaling --executor local
      sweep init scaling --template aws-efa
      sweep init --schema > grid.schema.json
    """
    if schema:
        refuse(["directory", "executor", "gpu", "template", "as_json"], "with --schema")
        from sweep.inputs.grid import json_schema

        click.echo(json.dumps(json_schema(), indent=2))
        return 0
    from sweep.inputs.detect import detect_site, other_partitions
    from sweep.inputs.load import choose_executor
    from sweep.inputs.site import parse_site
    from sweep.inputs.starter_files import SITE_TEMPLATES, grid_text, site_text

    grid, site = directory / "grid.yaml", directory / "site.yaml"
    if mistakes := [taken(path) for path in (grid, site) if path.exists()]:
        raise SweepError(mistakes)
    if template is not None:
        refuse(["executor", "gpu"], "with --template")
        chosen, text = "slurm", SITE_TEMPLATES[template].read_text(encoding="utf-8")
        facts: Mapping[str, object] = parse_site(text, template).model_dump(exclude_unset=True)
        texts = grid_text(facts), text
    else:
        chosen = choose_executor(executor)
        facts = detect_site(executor or chosen if executor or chosen == "slurm" else None, gpu)
        seen = "partition" in facts
        remarks = [_remark(group) for group in other_partitions(facts["partition"])[:OTHERS_SHOWN]] if seen else []
        texts = grid_text(facts), site_text(facts, remarks if seen or facts["name"] == "local" else [ELSEWHERE])
    for path, content in zip((grid, site), texts, strict=True):
        write_new(path, content)
    if as_json:
        click.echo(json.dumps({"grid": str(grid), "site": str(site), "executor": chosen, "detected": dict(facts)}))
        return 0
    click.echo(f"{grid}\n{site}", err=True)
    words = f"{shell_word(str(grid))} --site {shell_word(str(site))}"
    click.echo(f"check both, then `sweep plan {words}` and `sweep launch {words}`", err=True)
    return 0


def _remark(group: NodeGroup) -> str:
    limit = "no time limit" if group.time_limit_s is None else f"at most {group.time_limit_s // 60} min"
    gpus = f"{group.gpus} GPUs {group.gpu_type}".rstrip() if group.gpus else "no GPUs"
    return f"also up: partition {group.partition}, {plural(group.nodes, 'node')}, {gpus} each, {limit}"
