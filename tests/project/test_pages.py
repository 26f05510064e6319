"""Pages of the documentation that lead through something: what they show is run, what they quote exists."""

import configparser
import os
import re
import shlex
import subprocess
import sys
import zipfile

import pytest

from docs import dark
from sweep.outcomes import Outcome
from tests.support import driving
from tests.support.paths import REPOSITORY

DOCS = REPOSITORY / "docs"


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


@pytest.mark.timeout(600)
def test_the_tutorial_leads_to_a_heatmap(tmp_path):
    (grid,) = blocks("tutorial.md", "yaml")
    (tmp_path / "first.yaml").write_text(grid)
    commands = [line[2:] for block in blocks("tutorial.md", "console") for line in block.splitlines()]
    assert len(commands) >= 8
    for command in commands:
        done = driving.run(*shlex.split(command)[1:], cwd=tmp_path)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert (tmp_path / "sweeps" / "first" / "figures" / "heatmap.png").is_file()
    assert (tmp_path / "sweeps" / "first" / "report.html").is_file()
    (code,) = blocks("tutorial.md", "python")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" ok") == 3


def test_a_message_of_the_troubleshooting_page_is_one_that_the_product_prints():
    sources = [path.read_text() for path in (REPOSITORY / "sweep").rglob("*.py")]
    headings = re.findall(r"^### (.+)$", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)
    assert len(headings) >= 15
    outcomes = {str(outcome) for outcome in Outcome}
    unknown = [text for text in headings if text not in outcomes and not any(text in source for source in sources)]
    assert unknown == []


def test_the_documentation_builds_strictly(tmp_path):
    """Links, anchors, code references: a warning is an error."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    index = (tmp_path / "site" / "llms.txt").read_text()
    for page in DOCS.rglob("*.md"):
        where = page.relative_to(DOCS).with_suffix("").as_posix()
        assert f"]({where}/)" in index, where
    drawn = [path.relative_to(DOCS / "images") for path in (DOCS / "images").rglob("*-dark.png")]
    assert len(drawn) >= 13
    pages = [page.read_text() for page in (tmp_path / "site").rglob("*.html")]
    for path in drawn:  # by docs/dark.py
        dark_one, light_one = f"images/{path}#only-dark", f"images/{str(path).replace('-dark', '')}#only-light"
        counts = [(text.count(dark_one), text.count(light_one)) for text in pages if dark_one in text]
        assert counts, f"no page shows {path}"
        assert set(counts) == {(1, 1)}


def test_each_figure_of_the_gallery_is_drawn_by_its_command(tmp_path):
    (tmp_path / "docs").symlink_to(DOCS)
    commands = [line[2:] for block in blocks("gallery.md", "console") for line in block.splitlines()]
    pictures = re.findall(r"\]\(images/gallery/(\w+)\.png\)", (DOCS / "gallery.md").read_text())
    assert len(commands) == len(pictures) >= 7
    names = [command.split()[3] for command in commands if command.startswith("sweep figures")]
    assert pictures == ["heatmap", *names] == list(dark.GALLERY)
    assert [name for name in pictures if not (DOCS / f"images/gallery/{name}-dark.png").exists()] == [], (
        "draw them: python -m docs.dark"
    )
    done = driving.run(*shlex.split(commands[0])[1:], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # The others as one command: each starts matplotlib
    done = driving.run("figures", "docs/data/laptop.parquet", *names, "--out", ".", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {path.stem for path in tmp_path.glob("*.png")} == set(pictures)
    assert "no " not in done.stderr


@pytest.mark.parametrize(("page", "module"), [("own-strategy.md", "mystrategy"), ("own-tracker.md", "mytracker")])
def test_a_plug_in_of_a_page_conforms_as_the_page_checks_it(page, module, tmp_path):
    code, check = blocks(page, "python")
    (tmp_path / f"{module}.py").write_text(code)
    (tmp_path / f"test_{module}.py").write_text(check)
    project = configparser.ConfigParser()
    project.read_string(*blocks(page, "toml"))
    (group,) = [name for name in project.sections() if "entry-points" in name]
    lines = "".join(f"{name} = {value.strip(chr(34))}\n" for name, value in project[group].items())
    info = tmp_path / f"{module}-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(f"[{group.split(chr(34))[1]}]\n{lines}")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [*command, f"test_{module}.py"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


@pytest.mark.parametrize(
    ("page", "module"),
    [("own-workload.md", "mybench"), ("own-strategy.md", "mystrategy"), ("own-tracker.md", "mytracker")],
)
def test_pip_builds_the_plug_in_of_a_page_alongside_its_test_and_a_sweep(page, module, tmp_path):
    """setuptools refuses to guess which of several modules or folders a package consists of."""
    code, check = blocks(page, "python")
    (tmp_path / f"{module}.py").write_text(code)
    (tmp_path / f"test_{module}.py").write_text(check)
    (tmp_path / "pyproject.toml").write_text(*blocks(page, "toml"))
    (tmp_path / "sweeps" / "first").mkdir(parents=True)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", "built"]
    command = [sys.executable, "-m", "pip", "wheel", *options, "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (tmp_path / "built").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if "dist-info" not in name] == [f"{module}.py"]
    assert f"{module}-0.1.dist-info/entry_points.txt" in names
