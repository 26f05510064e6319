"""`sweep init`: its files plan, name every key, and overwrite nothing."""

import itertools
import json
import re
from pathlib import Path

import pytest

from sweep.inputs.grid import Grid
from sweep.inputs.load import parse_grid
from sweep.inputs.site import Site, parse_site
from sweep.inputs.starter_files import SITE_TEMPLATES, WIDEST, grid_text, site_text
from sweep.physics.hardware import GPUS
from sweep.planning.build import build
from tests.support.command_line import Command
from tests.support.made_sweeps import tree
from tests.support.slurm.cluster import Cluster

NODES = ((8, 64), (1, 2), (4, 3), (1, 1), (4, 18), (6, 5), (3, 2), (3, 1000))
"""(GPUs of a node, nodes)"""
CLUSTERS = [*zip(GPUS, itertools.cycle(NODES), strict=False), *(("cpu", size) for size in NODES)]
HERE = {"name": "local", "gpu": "cpu", "gpus_per_node": 2}
KEYS = re.compile(r"^(?:# )?(\w+): .*?  +# ", re.MULTILINE)
COMMENTED = re.compile(r"# (\w+: .*?)  +# ")


def test_what_it_writes_here_plans(tmp_path: Path, command: Command) -> None:
    code, out, err = command("init", tmp_path / "new" / "one", "--executor", "local")
    assert (code, out) == (0, "")
    assert json.loads(command.shown("init", "--schema"))["title"] == "Grid"
    document = command.json("init", tmp_path / "json", "--executor", "local")
    assert document["executor"] == "local"
    assert document["detected"]["gpus_per_node"] == parse_site(Path(document["site"]).read_text(), "s").gpus_per_node
    grid, site = tmp_path / "new" / "one" / "grid.yaml", tmp_path / "new" / "one" / "site.yaml"
    assert f"`sweep plan {grid} --site {site}`" in err
    code, out, err = command("plan", grid, "--site", site, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["runs"] >= 1
    assert command("launch", grid, "--site", site, "--executor", "local", "--dry-run", "--json")[0] == 0


@pytest.mark.parametrize(("gpu", "size"), CLUSTERS)
def test_what_it_writes_for_a_cluster_plans_in_every_width(gpu: str, size: tuple[int, int]) -> None:
    facts = {"name": "c", "gpu": gpu, "gpus_per_node": size[0], "max_nodes": size[1], "pilot_time": 14_400}
    site = parse_site(site_text(facts, ["also up: partition short"]), "site.yaml")
    grid = parse_grid(grid_text(facts), "grid.yaml")
    runs = build(grid, site).runs
    assert {run.nodes for run in runs} == set(grid.nodes)
    assert max(grid.nodes) <= min(size[1], WIDEST)
    assert site.model_dump(include=set(facts)) == facts
    assert len(runs) <= 250


def test_every_key_is_there() -> None:
    assert set(KEYS.findall(site_text(HERE))) == set(Site.model_fields)
    assert set(KEYS.findall(grid_text(HERE))) == set(Grid.model_fields) - {"site"}


@pytest.mark.parametrize("line", COMMENTED.findall(site_text(HERE)))
def test_a_comment_of_the_site_may_be_taken_off(line: str) -> None:
    key = line.split(":")[0]
    assert getattr(parse_site(site_text(HERE) + line + "\n", "site.yaml"), key) is not None


@pytest.mark.parametrize("line", COMMENTED.findall(grid_text(HERE)))
def test_a_comment_of_the_grid_may_be_taken_off(line: str) -> None:
    text = grid_text(HERE) + line + "\n"
    if line.startswith("tokens_per_gpu"):
        text = text.replace("global_batch: ", "# ", 1)
    site = parse_site(site_text(HERE), "site.yaml")
    assert build(parse_grid(text, "grid.yaml"), site).table.num_rows


def test_nothing_is_overwritten(tmp_path: Path, command: Command) -> None:
    (tmp_path / "site.yaml").write_text("mine")
    err = command.refused("init", tmp_path, "--executor", "local", within=tmp_path)
    assert "site.yaml: exists, and is not overwritten" in err
    err = command.refused("init", tmp_path / "site.yaml", "--executor", "local", within=tmp_path)
    assert "is a file, not a directory" in err


@pytest.mark.slurm
def test_on_a_cluster(
    slurm_cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: Command
) -> None:
    """Its GPUs report no kind: the user states it, and all else is detected."""
    slurm_cluster.use(monkeypatch)
    code, _, err = command("init", tmp_path)
    assert (code, "their kind cannot be detected" in err, "`sweep init --gpu KIND`" in err) == (2, True, True)
    assert tree(tmp_path) == []
    code, out, _ = command("init", tmp_path, "--gpu", "H100", "--json")
    assert (code, json.loads(out)["executor"]) == (0, "slurm")
    site = parse_site((tmp_path / "site.yaml").read_text(), "site.yaml")
    assert (site.partition, site.gpu, site.gpus_per_node, site.max_nodes) == ("main", "h100", 2, 8)
    assert "#SBATCH --partition=main" in command.shown(
        "launch", tmp_path / "grid.yaml", "--site", tmp_path / "site.yaml", "--dry-run"
    )


def test_a_site_for_a_cluster_is_written_where_no_slurm_is(tmp_path: Path, command: Command) -> None:
    """It wrote `gpu: cpu` and a tiny model, and with --executor slurm it refused."""
    for argv in (["--gpu", "h100"], ["--gpu", "gb200"], ["--gpu", "h100", "--executor", "slurm"]):
        where = tmp_path / "-".join(argv)
        assert command("init", where, *argv)[0] == 0
        site = parse_site((where / "site.yaml").read_text(), "site.yaml")
        assert (site.gpu, site.gpus_per_node) == (argv[1], 4 if argv[1] == "gb200" else 8)
        assert "No cluster is seen from here" in (where / "site.yaml").read_text()
        assert "tiny" not in (where / "grid.yaml").read_text()
        assert command("plan", where / "grid.yaml", "--site", where / "site.yaml", "--json")[0] == 0


def test_each_template_is_a_site_with_a_grid_that_plans_and_a_script(tmp_path: Path, command: Command) -> None:
    assert len(SITE_TEMPLATES) == 8
    for name in SITE_TEMPLATES:
        where = tmp_path / name
        assert command("init", where, "--template", name)[0] == 0
        arguments = [where / "grid.yaml", "--site", where / "site.yaml", "--executor", "slurm", "--dry-run"]
        assert f"--output={where / 's' / 'pilots'}" in command.shown("launch", *arguments, "--dir", where / "s")
