"""Pages that lead through something are done as they are written; pip's part by hand."""

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import yaml

from sweep.inputs.load import load_inputs
from sweep.library.plan import expected_saving
from sweep.planning.build import build
from sweep.records.collect import collect, write_results
from tests.support import driving
from tests.support.made_records import made_measurement, made_record, made_run
from tests.support.made_sweeps import GRID, measured
from tests.support.markdown import DOCS, blocks, commands, install_plugin
from tests.support.paths import REPOSITORY


def sweep_commands(page, *but):
    return [line for line in commands(page) if line.startswith("sweep ") and not line.startswith(but)]


def run(command, folder, **how):
    done = driving.run(*shlex.split(command)[1:], cwd=folder, **how)
    undecided = "--baseline" in command and "undecided" in done.stdout  # of single runs with three iterations each
    assert done.returncode == (1 if undecided else 0), f"{command}\n{done.stdout}{done.stderr}"
    return done


@pytest.mark.parametrize("command", sweep_commands(REPOSITORY / "README.md"))
def test_a_command_of_the_readme(command, tmp_path):
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    run(command + (" -o nodes=1" if "ultrascale" in command else ""), tmp_path)  # tests/cli/test_plan.py has all of it
    assert [path.name for path in tmp_path.iterdir()] == ["examples"]


@pytest.mark.timeout(600)
def test_the_tutorial_leads_to_a_heatmap(tmp_path):
    (tmp_path / "first.yaml").write_text(*blocks(DOCS / "tutorial.md", "yaml"))
    lines = sweep_commands(DOCS / "tutorial.md")
    assert len(lines) >= 8
    for command in lines:
        run(command, tmp_path)
    assert (tmp_path / "sweeps" / "first" / "figures" / "heatmap.png").is_file()
    assert (tmp_path / "sweeps" / "first" / "report.html").is_file()
    (code,) = blocks(DOCS / "tutorial.md", "python")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" ok") == 3


SMALLER = {
    "workload": "simulated", "models": ["tiny-1M"], "nodes": [1, 2], "sequence_length": 32, "global_batch": 1024,
    "micro_batch_size": [2, 4], "dtype": "fp32", "iterations": 3, "params": {"step_s": 0.05, "speed": 10},
    "remeasure": 0,
}  # fmt: skip
"""replaces what `sweep init` proposes for GPUs; tests/system/test_slurm.py trains on Slurm"""


@pytest.mark.slurm
@pytest.mark.timeout(600)
def test_the_cluster_tutorial_leads_to_a_heatmap(slurm_cluster, tmp_path):
    """On a real Slurm; what a cluster without GPUs cannot have is replaced."""
    how = {"env": slurm_cluster.env, "timeout": 280}
    init, *after_init = sweep_commands(DOCS / "cluster.md")
    run(init, tmp_path, **how)
    site, grid = tmp_path / "first/site.yaml", tmp_path / "first/grid.yaml"
    detected = yaml.safe_load(site.read_text())
    partition = re.search(r"PartitionName=(\w+)", slurm_cluster.conf.read_text())[1]
    assert (detected["gpu"], detected["gpus_per_node"], detected["partition"]) == ("h100", 2, partition)
    site.write_text(yaml.safe_dump({**detected, "gpu": "cpu", "poll_interval_s": 1}))
    grid.write_text(yaml.safe_dump({"name": yaml.safe_load(grid.read_text())["name"], **SMALLER}))
    assert [command.split()[1] for command in after_init] == [
        "plan", "launch", "launch", "launch", "status", "resume", "report",
    ]  # fmt: skip
    with contextlib.ExitStack() as started:
        for command in after_init:
            if "--watch" in command:  # in a second terminal: only a launcher submits a pilot for what must be retried
                watching = driving.start(*shlex.split(command)[1:], cwd=tmp_path, env=slurm_cluster.env)
                started.callback(watching.wait)
                started.callback(watching.kill)
                continue
            done = run(command, tmp_path, **how)
            if "--dry-run" in command:
                assert "#SBATCH" in done.stdout
                assert not (tmp_path / "sweeps").exists()
        assert watching.wait(60) == 0
    for name in ("smoke", "first"):
        records = driving.records_of(tmp_path / "sweeps" / name)
        assert [record["outcome"] for record in records].count("ok") == 4
    assert (tmp_path / "sweeps/first/figures/heatmap.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "sweeps/first/report.html").is_file()


def test_the_commands_of_the_page_of_reports(tmp_path):
    """Those that read, in their order; all figures are drawn once."""
    for name in re.findall(r"\b\w+\.parquet", (DOCS / "reports.md").read_text()):
        write_results(tmp_path / name, [made_record(made_run(zero=zero)) for zero in (0, 1)])
    (tmp_path / "larger.yaml").write_text(GRID)
    for name in ("first", "certify"):
        sweep = measured(tmp_path / "sweeps" / name)
        with sweep.directory.site.open("a") as site:
            site.write("dollars_per_gpu_hour: 2.5\n")
    shutil.copy(collect(sweep.directory).path, tmp_path / "good.parquet")
    for command in sweep_commands(DOCS / "reports.md", "sweep launch"):
        shorter = " --no-figures" if "--out by-step-time.html" in command else ""
        assert run(command + shorter, tmp_path).stdout.strip(), command


def test_the_comparison_that_the_page_of_reports_shows_is_printed(tmp_path):
    """12 cells of four layouts, twice, with noise; the second copy has another NCCL, and one cell slower by 5 %."""
    noise = np.random.default_rng(21)
    for name, nccl in (("old", "2.26"), ("new", "2.27")):
        records = []
        for model, nodes in [(model, nodes) for model in ("1B", "4B", "8B") for nodes in (1, 2, 4, 8)]:
            slower = 1.05 if (name, model, nodes) == ("new", "4B", 4) else 1
            for tp, zero in ((1, 0), (1, 1), (2, 0), (2, 1)):
                ran = made_run(model=model, nodes=nodes, dp=2 * nodes // tp, tp=tp, zero=zero)
                step_s = 0.1 * nodes * slower * (1 + 0.02 * tp + 0.01 * zero) * noise.normal(1, 0.004)
                times = noise.normal(step_s, 0.003 * step_s, 10)
                measured = [made_measurement(*times, versions={"nccl": nccl})] * ran.gpus
                records.append(made_record(ran, node_names=[f"n{i}" for i in range(nodes)], measurements=measured))
        write_results(tmp_path / f"{name}.parquet", records)
    (shown,) = blocks(DOCS / "reports.md", "text")
    assert run("sweep compare old.parquet new.parquet", tmp_path).stdout == shown


def test_the_figures_of_the_gallery_are_drawn_by_its_commands(tmp_path):
    (tmp_path / "docs").symlink_to(DOCS)
    heatmap, others = [line for line in sweep_commands(DOCS / "figures.md") if "laptop.parquet" in line]
    pictures = re.findall(r"\]\(images/gallery/(\w+)\.png\)", (DOCS / "figures.md").read_text())
    run(heatmap, tmp_path)
    assert "no " not in run(others, tmp_path).stderr
    assert {path.stem for path in tmp_path.glob("*.png")} == set(pictures)
    assert len(pictures) >= 3


def test_the_documentation_builds_strictly(tmp_path):
    """Links, anchors, code references: a warning is an error."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    index = (tmp_path / "site" / "llms.txt").read_text()
    for page in DOCS.rglob("*.md"):
        assert f"]({page.relative_to(DOCS).with_suffix('').as_posix()}/)" in index, page


PLUGINS = pytest.mark.parametrize(
    ("page", "module"),
    [("own-workload.md", "mybench"), ("own-strategy.md", "mystrategy"), ("trackers.md", "mytracker")],
)


CHECKS = {
    "mystrategy": """
from tests.support.conforming_strategies import check_strategy

def test_it_conforms():
    check_strategy("fewest-gpus")
""",
    "mytracker": """
from mytracker import JsonFiles
from tests.support.conforming_trackers import check_tracker

def test_it_conforms(tmp_path, capfd):
    check_tracker(JsonFiles, tmp_path, capfd, count=lambda run: len(list(tmp_path.rglob(f"{run.key}.json"))))
""",
}


def on_path(folder):
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(folder), str(REPOSITORY), os.environ.get("PYTHONPATH")]))}


@pytest.mark.parametrize(("page", "module"), [("own-strategy.md", "mystrategy"), ("trackers.md", "mytracker")])
def test_a_plug_in_of_a_page_conforms(page, module, tmp_path):
    """The workload's page is measured below."""
    install_plugin(DOCS / page, module, tmp_path)
    (tmp_path / f"test_{module}.py").write_text(CHECKS[module])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [*command, f"test_{module}.py"], cwd=tmp_path, env={**os.environ, **on_path(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


@PLUGINS
def test_pip_builds_the_plug_in_of_a_page_alongside_its_test_and_a_sweep(page, module, tmp_path):
    """setuptools refuses to guess which of several modules or folders a package consists of."""
    install_plugin(DOCS / page, module, tmp_path)
    (tmp_path / "pyproject.toml").write_text(*blocks(DOCS / page, "toml"))
    (tmp_path / "sweeps" / "first").mkdir(parents=True)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", "built"]
    command = [sys.executable, "-m", "pip", "wheel", *options, "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (tmp_path / "built").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if "dist-info" not in name] == [f"{module}.py"]
    assert f"{module}-0.1.dist-info/entry_points.txt" in names


MEETING = """
import torch
import torch.distributed as dist
from sweep.contract import Measurement, Phase, Workload


def main(run, progress):
    dist.init_process_group("gloo")
    progress.heartbeat(Phase.STEADY, 0)
    total = torch.ones(1)
    dist.all_reduce(total)
    assert int(total) == dist.get_world_size() == run.place.world_size
    dist.destroy_process_group()
    progress.measured(Measurement(step_times_s=[0.1] * run.iterations))


WORKLOAD = Workload(
    name="mybench", main="mybench:main", axes=frozenset({"dp", "micro_batch_size", "grad_accum"}), params={"work": 100}
)
"""
"""as users' own code does it: ranks meet by the variables alone, and nothing of ours is involved"""


@pytest.mark.parametrize(("code", "ok"), [(None, 6), (MEETING, 1)], ids=["as it is written", "with torch.distributed"])
def test_the_workload_of_its_page_is_measured(code, ok, tmp_path):
    """Four layouts, and the best two once more; as users' own code meets, one."""
    install_plugin(DOCS / "own-workload.md", "mybench", tmp_path)
    if code is not None:
        (tmp_path / "mybench.py").write_text(code)
    (tmp_path / "grid.yaml").write_text(blocks(DOCS / "own-workload.md", "yaml")[0])
    more = "" if code is None else " -o params.work=1 -o micro_batch_size=2 -o remeasure=0"
    done = run(f"sweep launch grid.yaml --dir s --executor local --yes --json{more}", tmp_path, env=on_path(tmp_path))
    assert json.loads(done.stdout)["counts"] == {"ok": ok}
    assert {len(record["step_times_s"]) for record in driving.records_of(tmp_path / "s")} == {5}


def test_five_minutes_are_one_site_one_grid_one_command(tmp_path):
    """Measured here with simulated ranks; that it is done after half an hour is what its plan says of its GPUs."""
    site, grid = (tmp_path / name for name in ("site.yaml", "grid.yaml"))
    page = DOCS / "five-minutes.md"
    for file, text in zip((site, grid), blocks(page, "yaml"), strict=True):
        file.write_text(text)
    given = load_inputs(grid, (), str(site))
    assert expected_saving(build(*given), *given)["guided"].node_hours < 0.5 * sum(given[0].nodes)
    site.write_text(yaml.safe_dump({"gpu": "cpu", "gpus_per_node": 2}))
    grid.write_text(yaml.safe_dump({**SMALLER, "name": yaml.safe_load(grid.read_text())["name"], "nodes": [1]}))
    launch, *after = sweep_commands(page)
    run(f"{launch} --executor local", tmp_path)
    for command in after:
        assert "first" in command
        assert run(command, tmp_path).stdout.strip()
    assert (tmp_path / "sweeps/first/figures/heatmap.png").is_file()


def test_the_page_of_sites_names_a_template(tmp_path):
    (command,) = sweep_commands(DOCS / "sites.md")
    run(command, tmp_path)
    assert build(*load_inputs(tmp_path / "first/grid.yaml", (), str(tmp_path / "first/site.yaml"))).runs
