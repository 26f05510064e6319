"""The README's commands run as written, its files parse, its pictures exist."""

import re
import shlex
import subprocess

import pytest

from sweep.cli.main import COMMANDS, cli
from sweep.inputs.load import parse_grid
from sweep.inputs.site import parse_site
from sweep.plugins import STRATEGIES
from tests.support import driving
from tests.support.paths import REPOSITORY

ROOT = REPOSITORY
README = (ROOT / "README.md").read_text()
COMMANDS_SHOWN = [
    line[2:] for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL) for line in block.splitlines()
]
YAML = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)


def test_the_readme_shows_two_commands_and_both_are_targets():
    made = [command for command in COMMANDS_SHOWN if command.startswith("make")]
    assert made == ["make demo", "make test"]
    for command in made:
        subprocess.run(["make", "-n", command.split()[1]], cwd=ROOT, check=True, capture_output=True)


@pytest.mark.parametrize("command", [c for c in COMMANDS_SHOWN if c.startswith("sweep ")])
def test_a_command_of_the_readme(command, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = driving.run(*shlex.split(command)[1:], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["examples"]


def test_the_readmes_grid_and_site_are_valid():
    grid, site = YAML
    assert parse_grid(grid, "README.md").name == "llama-8b"
    assert parse_site(site, "README.md").gpus_per_node == 8


def test_the_site_and_the_options_of_the_cluster_page_are_valid():
    page = (ROOT / "docs" / "cluster.md").read_text()
    (site,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert parse_site(site, "docs/cluster.md").gpus_per_node == 8
    shown = re.findall(r"(?:^\$ |`)sweep ([a-z]+)([^`\n]*)", page, re.MULTILINE)
    assert {"init", "plan", "launch", "status", "resume"} <= {name for name, _ in shown}
    for name, words in shown:
        options = {option for parameter in cli.get_command(None, name).params for option in parameter.opts}
        assert set(re.findall(r" (--?[a-z][a-z-]*)", words)) <= options, (name, words)


def test_every_command_is_in_the_readme_and_the_design():
    design = (ROOT / "docs" / "design.md").read_text()
    for name in COMMANDS:
        assert f"`sweep {name}" in README, name
        assert f"`sweep {name}" in design or f"`{name}`" in design, name


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_is_documented(name):
    assert f"| `{name}` | " in (ROOT / "docs" / "search.md").read_text()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(name):
    done = driving.run(name, "--help")
    assert done.returncode == 0, done.stderr
    assert f"sweep {name}" in done.stdout.replace("Usage: sweep", "", 1)


def test_links_and_pictures_exist():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for target in re.findall(r"\]\(([^)#:]+)\)", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_a_mistyped_command_is_answered_with_the_nearest():
    done = driving.run("lanch", "grid.yaml")
    assert done.returncode == 2
    assert "no such command 'lanch'" in done.stderr
    assert "did you mean launch" in done.stderr
