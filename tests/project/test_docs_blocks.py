"""Every code block and command of the documentation: it parses, and what it names exists. Pages that lead through
something are executed too: test_pages, test_docs, test_docs_own_workload, test_docs_reports, test_contributing."""

import ast
import configparser
import dataclasses
import importlib
import importlib.util
import re
import shlex

import click
import pytest
import yaml

from sweep.cli.main import cli
from sweep.inputs.grid import Grid
from sweep.inputs.load import parse_grid
from sweep.inputs.site import Site, parse_site
from sweep.physics.measured import MeasuredRates
from tests.support.paths import REPOSITORY

PAGES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?: {4}\S.*\n(?:(?: {4}.*)?\n)*?)+(?=\n|\S|\Z)")
OTHERS = {"pip", "pipx", "uv", "cd", "export", "install", "bash", "eval", "pytest", "python3", "sudo"}
"""programs that are not this project's"""
LANGUAGES = {"yaml", "python", "toml", "console", "bash", "diff", "text"}
RATES = {field.name for field in dataclasses.fields(MeasuredRates)}
MAKE = (REPOSITORY / "Makefile").read_text()


def fenced(language):
    """(page, block) of every page, as parameters of a test."""
    found = [(page, text) for page in PAGES for kind, text in FENCE.findall(page.read_text()) if kind == language]
    return [pytest.param(page, text, id=f"{page.stem}-{number}") for number, (page, text) in enumerate(found)]


def commands(page):
    """Every command line of a page: in blocks of a terminal, in indented blocks, and in backquotes."""
    text = page.read_text()
    prose = FENCE.sub("", text)
    blocks = [block for kind, block in FENCE.findall(text) if kind in ("console", "bash")]
    blocks += [re.sub(r"(?m)^ {4}", "", block) for block in INDENTED.findall(prose)]
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"`((?:sweep|make|python -m) [^`]+)`", prose.replace("\n", " "))
    return [line.removeprefix("$ ").strip() for line in lines if line.strip()]


def test_blocks_are_of_known_languages():
    kinds = {(page.name, kind) for page in PAGES for kind, _ in FENCE.findall(page.read_text())}
    assert {kind for _, kind in kinds} == LANGUAGES, kinds


@pytest.mark.parametrize(("page", "text"), fenced("yaml"))
def test_a_yaml_block_is_a_grid_a_site_or_keys_of_one(page, text):
    content = yaml.safe_load(text)
    keys = set(content)
    if f"{content.get('workload')} = " in page.read_text():  # registered by a block of the page, which is executed
        assert keys <= set(Grid.model_fields)
    elif {"models", "nodes", "sequence_length"} <= keys:
        parse_grid(text, page.name)
    elif {"gpu", "gpus_per_node"} <= keys:
        parse_site(text, page.name)
    else:
        known = set(Grid.model_fields) | set(Site.model_fields) | RATES
        assert keys <= known, keys - known


@pytest.mark.parametrize(("page", "text"), fenced("python"))
def test_a_python_block_imports_what_exists(page, text):
    """Of the project; a page's own modules are those that it names as files."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in ("sweep", "analysis", "bench_workloads"):
            module = importlib.import_module(node.module)
            for name in node.names:
                assert hasattr(module, name.name) or importlib.util.find_spec(f"{node.module}.{name.name}"), name.name


@pytest.mark.parametrize(("page", "text"), fenced("toml"))
def test_a_toml_block_registers_under_a_group_of_ours(page, text):
    project = configparser.ConfigParser()
    project.read_string(text)
    groups = [section for section in project.sections() if "entry-points" in section]
    sources = (REPOSITORY / "sweep/plugins.py").read_text()
    assert groups
    assert all(f'"{re.search(chr(34) + "(.*)" + chr(34), group)[1]}"' in sources for group in groups)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_commands_name_what_exists(page):
    problems = [(line, problem) for line in commands(page) for problem in [problem_of(line)] if problem]
    assert problems == []


def problem_of(line):
    """What is wrong with a command line; None for one of another program, and for a line that is no command."""
    words = (
        shlex.split(re.sub(r"\s#\s.*", "", line).replace("'s ", " s "), posix=True) if balanced(line) else line.split()
    )
    while words and re.match(r"[A-Z_]+=", words[0]):
        words = words[1:]
    if not words:
        return None
    if words[0] == "sweep" and len(words) > 1:
        return of_sweep(words[1:])
    if words[0] == "make" and len(words) > 1 and re.match(r"[a-z-]+$", words[1]):
        return None if re.search(rf"^{words[1]}:", MAKE, re.MULTILINE) else f"no target {words[1]}"
    if words[0] == "python" and len(words) > 1:
        return of_python(words[1:])
    return None


def balanced(line):
    try:
        shlex.split(re.sub(r"\s#\s.*", "", line).replace("'s ", " s "))
    except ValueError:
        return False
    return True


def of_sweep(words):
    command = cli.get_command(None, words[0])
    if command is None:
        return None if words[0].startswith("-") or words[0].isupper() else f"no command {words[0]}"
    if isinstance(command, click.Group) and len(words) > 1 and words[1] in command.commands:
        command = command.commands[words[1]]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    unknown = [word for word in words if re.match(r"--?[a-z]", word) and word.split("=")[0] not in known]
    return f"unknown options {unknown}" if unknown else None


def of_python(words):
    if words[0] == "-m" and words[1] != "pytest":
        ours = words[1].split(".")[0] in ("sweep", "analysis", "bench_workloads", "benchmarks", "tests", "docs")
        return f"no module {words[1]}" if ours and importlib.util.find_spec(words[1]) is None else None
    if words[0] == "-m":
        words = [word for word in words[2:] if word.startswith("tests/")]
    paths = [word.split("::")[0] for word in words if re.match(r"(tests|benchmarks|examples)/", word)]
    missing = [path for path in paths if not (REPOSITORY / path).exists() and path not in NEW]
    return f"no file {missing}" if missing else None


NEW = set()
"""files that an example of CONTRIBUTING.md adds"""


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("sweep launch grid.yaml --sitee h100.yaml", "unknown options ['--sitee']"),
        ("sweep lanch grid.yaml", "no command lanch"),
        ("make tests", "no target tests"),
        ("python -m benchmarks.rival", "no module benchmarks.rival"),
        ("python -m pytest tests/nowhere.py", "no file ['tests/nowhere.py']"),
        ("dp * tp * pp * cp = GPUs", None),
    ],
)
def test_a_wrong_command_is_found(line, problem):
    assert problem_of(line) == problem


def test_a_commit_of_the_numbers_page_is_one_and_each_figure_is_on_the_page_behind_it():
    table = [line for line in (REPOSITORY / "docs/numbers.md").read_text().splitlines() if line.startswith("| ")][1:]
    assert len(table) >= 10
    page = ""
    for line in table:
        what, figure, command, data, commit = (cell.strip() for cell in line.strip("|").split("|"))
        linked = re.search(r"\]\(([\w/-]+\.md)", what)
        page = linked[1] if linked else page
        assert figure.rstrip(" s") in (REPOSITORY / "docs" / page).read_text(), f"{figure} is not on {page}"
        assert re.fullmatch(r"[0-9a-f]{7}", commit)
        assert data
        assert problem_of(command.strip("`")) is None
