"""Tables in the documentation that are made from the code equal it."""

import subprocess
import sys

import pytest

from bench_workloads import WORKLOADS
from docs.generated import DOCS, PLACE, TABLES, written
from docs.summaries import SUMMARIES
from sweep.cli.main import COMMANDS
from tests.support import driving
from tests.support.paths import REPOSITORY
from tests.support.transformer.truths import Truths

PAGES = [page.relative_to(DOCS).as_posix() for page in sorted(DOCS.rglob("*.md")) if PLACE.search(page.read_text())]


@pytest.mark.parametrize("page", PAGES)
def test_a_pages_tables_equal_the_code(page):
    text = (DOCS / page).read_text()
    assert written(page, text) == text, "rebuild them: python -m docs.generated"


def test_every_table_is_in_one_page():
    names = [found["name"] for page in PAGES for found in PLACE.finditer((DOCS / page).read_text())]
    assert sorted(names) == sorted(TABLES)
    assert set(WORKLOADS) <= set(TABLES)


@pytest.mark.parametrize("name", sorted(set(TABLES) - set(SUMMARIES) - {"gpus", "models", "sites"}))
def test_every_key_and_parameter_has_a_meaning(name):
    unexplained = {"models": ["name"], "site": ["name"]}
    rows = [line.strip("| ").split(" | ") for line in TABLES[name]().splitlines()[2:]]
    empty = [row[0].strip("`") for row in rows if len(row) < 3 or not row[2].strip()]
    assert empty == unexplained.get(name, [])


def test_a_layout_that_failed_is_counted_in_the_summary(tmp_path, monkeypatch):
    compared = [("dp=2", "fp32", 2, None, 1.0), ("dp=2 zero=3", "fp32", 2, (1e-7, 3e-7), 1.2)]
    Truths(compared, [("pp=2", "an error", "a reason")]).write(tmp_path / "parallel_truth.csv")
    monkeypatch.setattr("docs.summaries.DATA", tmp_path)
    monkeypatch.setattr("docs.summaries.FEWEST", 2)
    assert SUMMARIES["truths"]().startswith("2 lines, 1 failed, with torch ")
    assert "| `dp` | 2 | 1e-07, 3e-07 |  |  |\n\nIn fewer layouts: `zero=3`." in SUMMARIES["truths"]()
    assert SUMMARIES["refused"]().endswith("| pp=2 | a reason |")


PAGE_OF_COMMANDS = """
from types import SimpleNamespace
from docs.hooks import on_page_markdown
print(on_page_markdown("<!-- commands -->", SimpleNamespace(file=SimpleNamespace(src_uri="reference/commands.md"))))
"""


@pytest.fixture(scope="module")
def page_of_commands():
    """Made in a process of its own, as a build does: click stores a command's option --help at its first use."""
    command = [sys.executable, "-c", PAGE_OF_COMMANDS]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", ["plan", "best", "nodes"])
def test_the_page_of_commands_has_what_the_terminal_shows(name, page_of_commands):
    assert "<!-- commands -->" in (DOCS / "reference/commands.md").read_text()
    shown = driving.run(*name.split(), "--help", env={"COLUMNS": "80"}).stdout
    assert f"## sweep {name}\n\n```text\n{shown.rstrip()}\n```" in page_of_commands
    assert [command for command in COMMANDS if f"## sweep {command}\n" not in page_of_commands] == []
