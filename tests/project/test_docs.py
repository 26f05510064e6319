"""Every block and command of the documentation parses, and what it names exists. What is executed: test_docs_run,
test_contributing; tables that are made from the code: test_docs_generated."""

import ast
import configparser
import dataclasses
import importlib
import importlib.util
import json
import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from bench_workloads.trainers import TRAINERS
from sweep.cli.main import COMMANDS, SECTIONS, cli
from sweep.errors import SweepError
from sweep.inputs.grid import Grid
from sweep.inputs.load import parse_grid
from sweep.inputs.site import Site, parse_site
from sweep.outcomes import Outcome
from sweep.physics.measured import MeasuredRates
from sweep.planning.build import build
from sweep.plugins import STRATEGY
from tests.support.markdown import DOCS, FENCE, PAGES, blocks, commands, prose
from tests.support.paths import REPOSITORY

OTHERS = {"pip", "pipx", "uv", "cd", "export", "install", "python3"}
"""programs of terminal blocks that are not this project's"""
RATES = {field.name for field in dataclasses.fields(MeasuredRates)}
MAKE = (REPOSITORY / "Makefile").read_text()
ROOTS = "(?:sweep|analysis|bench_workloads|benchmarks|tests|examples|templates|docs)"
FILE = re.compile(rf"`({ROOTS}/[^\s`:]*)")
SITE = {"gpu": "h100", "gpus_per_node": 8}
EXAMPLE = {"models": ["8B"], "nodes": [1, 64], "sequence_length": 4096, "global_batch": "1Mi"}
CONFIG = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
}  # fmt: skip
"""of a Hugging Face repository: Llama 3 8B"""
WRITTEN = {"tests/bench_workloads/trainers/golden/tinytrain.json"}
"""by a command of an example of CONTRIBUTING.md, which test_contributing applies"""


def fenced(language):
    """(page, block) of every page, as parameters of a test."""
    found = [(page, text) for page in PAGES for text in blocks(page, language)]
    return [pytest.param(page, text, id=f"{page.stem}-{number}") for number, (page, text) in enumerate(found)]


def in_sentences(page):
    """Commands in backquotes; a placeholder, or an argument that the sentence gives, may stand for the rest."""
    return re.findall(rf"`((?:sweep |make |python -m |python {ROOTS}/)[^`]+)`", prose(page).replace("\n", " "))


def test_every_block_is_fenced_and_of_a_known_language():
    kinds = {kind for page in PAGES for kind, _ in FENCE.findall(page.read_text())}
    assert kinds == {"yaml", "python", "toml", "console", "bash", "diff", "markdown", "text"}
    for page in PAGES:
        assert not re.search(r"^ *```|^~~~|^\n {4,}\S", prose(page), re.MULTILINE), (
            f"{page}: a block without a language"
        )
    assert [page.name for page in PAGES for kind, _ in FENCE.findall(page.read_text()) if kind == "diff"] == (
        ["CONTRIBUTING.md"] * (REPOSITORY / "CONTRIBUTING.md").read_text().count("```diff\n")
    ), "test_contributing applies them"


@pytest.mark.parametrize(("page", "text"), fenced("yaml"))
def test_a_yaml_block_is_a_grid_a_site_or_keys_that_can_be_added_to_one(page, text, tmp_path, monkeypatch):
    content = yaml.safe_load(text)
    keys = set(content)
    if f"{content.get('workload')} = " in page.read_text():  # registered by a block of the page, which is executed
        assert keys <= set(Grid.model_fields)
    elif {"models", "nodes", "sequence_length"} <= keys:
        parse_grid(text, page.name)
    elif {"gpu", "gpus_per_node"} <= keys:
        parse_site(text, page.name)
    elif keys <= set(Grid.model_fields):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "path").mkdir()
        (tmp_path / "path/config.json").write_text(json.dumps(CONFIG))
        assert parse_grid(yaml.safe_dump(EXAMPLE | {"site": SITE} | content, sort_keys=False), page.name).models
    elif keys <= set(Site.model_fields):
        assert parse_site(yaml.safe_dump(SITE | content), page.name)
    else:
        assert keys <= RATES, keys - RATES


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
def test_commands_and_files_that_a_page_names_exist(page):
    found = [(line, problem_of(registered(line, page))) for line in commands(page)]
    found += [(line, problem_of(line, whole=False)) for line in in_sentences(page)]
    made = WRITTEN | set(re.findall(r"^`([\w./]+)`:$", page.read_text(), re.MULTILINE))
    found += [
        (name, not list(REPOSITORY.glob(name.rstrip("/")))) for name in FILE.findall(prose(page)) if name not in made
    ]
    assert [(text, problem) for text, problem in found if problem] == []


def registered(line, page):
    """A command with a tracker that a block of the page registers, as test_docs_run does: with one of ours."""
    own = [
        name
        for kind, text in FENCE.findall(page.read_text())
        if kind == "toml"
        for name in re.findall(r"^([\w-]+) =", text, re.MULTILINE)
    ]
    return re.sub(rf"--to (?:{'|'.join(own)})$", "--to wandb", line) if own else line


def problem_of(line, *, whole=True):
    """What is wrong with a command line, or None. ``whole``: it can be typed as it is, so nothing may be missing."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        return str(error)
    while words and re.match(r"[A-Z_]+=", words[0]):
        name = words.pop(0).split("=")[0]
        if not any(f'"{name}"' in path.read_text() for path in (REPOSITORY / "tests").rglob("*.py")):
            return f"no variable {name}"
    if any(word in ("|", ">", "&&") for word in words):
        parts = [part.split(" > ")[0] for part in re.split(r" \| | && ", line)]
        return next(filter(None, (problem_of(part, whole=whole) for part in parts)), None)
    if Path(words[0]).name in OTHERS:
        return None
    checks = {"sweep": of_sweep, "make": of_make, "python": of_python}
    return checks[words[0]](words[1:], whole=whole) if words[0] in checks else f"no program {words[0]}"


def of_sweep(words, *, whole):
    """Parsed as the command itself does: options, their values, arguments. Files need not exist."""
    if words[0] == "--help" or words[0].isupper():  # `sweep COMMAND --help`
        return None
    command = cli.get_command(None, words[0])
    if command is None:
        return f"no command {words[0]}"
    if not whole:
        known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        unknown = [word for word in words if re.match(r"--?[a-z]", word) and word.split("=")[0] not in known]
        return f"unknown options {unknown}" if unknown else None
    try:
        context = command.make_context(words[0], words[1:])
    except (SweepError, click.UsageError) as error:
        return str(error)
    keys = [key.split("=")[0].split(".")[0] for key in context.params.get("overrides") or ()]
    unknown = [key for key in keys if key not in Grid.model_fields]
    missing = [word for word in words if word.startswith("examples/") and not (REPOSITORY / word).exists()]
    return f"no key {unknown}" if unknown else f"no file {missing}" if missing else None


def of_make(words, *, whole):
    targets = [word for word in words if "=" not in word]
    variables = [word.split("=")[0] for word in words if "=" in word]
    missing = [target for target in targets if not re.search(rf"^{target}:", MAKE, re.MULTILINE)]
    missing += [name for name in variables if f"$({name})" not in MAKE]
    return f"no target or variable {missing}" if missing else None


def of_python(words, *, whole):
    """A module or a file of the project; its options must be in its source, pytest's files must exist."""
    if words[0] == "-m" and words[1] == "pytest":
        paths = [word.split("::")[0] for word in words[2:] if word.startswith("tests/")]
        missing = [path for path in paths if not (REPOSITORY / path).exists()]
        return f"no file {missing}" if missing else None
    if words[0] == "-m":
        place, rest = REPOSITORY / words[1].replace(".", "/"), words[2:]
        sources = sorted(place.glob("*.py")) or [place.with_suffix(".py")]
    else:
        sources, rest = [REPOSITORY / words[0]], words[1:]
    if not all(source.exists() for source in sources):
        return f"no module {words[:2]}"
    text = "".join(source.read_text() for source in sources)
    unknown = [word for word in rest if word.startswith("--") and f'"{word}"' not in text]
    return f"unknown options {unknown}" if unknown else None


def test_a_figure_of_the_numbers_page_is_in_the_section_behind_it():
    table = [line for line in (REPOSITORY / "docs/numbers.md").read_text().splitlines() if line.startswith("| [")]
    assert len(table) >= 10
    for line in table:
        what, figure, command, data, commit = (cell.strip() for cell in line.strip("|").split(" | "))
        page, anchor = re.search(r"\]\(([\w/-]+\.md)(?:#([\w-]+))?\)", what).groups()
        assert stated(figure, section(page, anchor)), f"{figure} is not in {page}#{anchor}"
        assert re.fullmatch(r"[0-9a-f]{7}", commit)
        assert data
        assert problem_of(command.strip("`")) is None


def section(page, anchor):
    """The part of a page under the heading of an anchor; the whole page without one."""
    text = (REPOSITORY / "docs" / page).read_text()
    parts = {re.sub(r"[^\w -]", "", part.split("\n", 1)[0]).strip().lower().replace(" ", "-"): part
             for part in re.split(r"^#+ ", text, flags=re.MULTILINE)}  # fmt: skip
    return parts[anchor] if anchor else text


def stated(figure, text):
    """Is the figure in the text as a number of its own? A unit may be in the head of its column."""
    number, _, unit = figure.partition(" ")
    after = rf"(?: {re.escape(unit)}| \|)" if unit else "(?=[ ,;])"
    return re.search(rf"(?<![\d.,-]){re.escape(number)}{after}", text)


def test_there_are_few_commands_each_in_one_section():
    assert len(COMMANDS) == sum(map(len, SECTIONS.values()))
    assert len(COMMANDS) <= 22


def test_every_command_is_in_the_readme_and_the_design():
    readme, design = (REPOSITORY / "README.md").read_text(), (DOCS / "design.md").read_text()
    for name in COMMANDS:
        assert f"`sweep {name}" in readme, name
        assert f"`sweep {name}" in design or f"`{name}`" in design, name


@pytest.mark.parametrize("name", STRATEGY.table)
def test_every_strategy_is_documented(name):
    assert f"| `{name}` | " in (DOCS / "search.md").read_text()


@pytest.mark.parametrize("page", PAGES[:2], ids=["README", "CONTRIBUTING"])
def test_links_of_a_page_that_mkdocs_does_not_build_exist(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", prose(page)):
        assert (page.parent / target).exists(), target


def test_a_message_of_the_troubleshooting_page_is_one_that_the_product_prints():
    sources = [path.read_text() for path in (REPOSITORY / "sweep").rglob("*.py")]
    headings = re.findall(r"^### (.+)$", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)
    assert len(headings) >= 15
    outcomes = {str(outcome) for outcome in Outcome}
    unknown = [text for text in headings if text not in outcomes and not any(text in source for source in sources)]
    assert unknown == []


GUIDES = dict(
    re.findall(
        r"^\| \[.*?\]\(trainers/([\w-]+)\.md\).*?\| `(\w+)` \|", (DOCS / "trainers.md").read_text(), re.MULTILINE
    )
)
"""page -> workload"""
ON_GPUS = [(page, text) for page in GUIDES for text in blocks(DOCS / f"trainers/{page}.md", "yaml")
           if "models:" in text and "site: {gpu: cpu" not in text]  # fmt: skip


def test_every_trainer_has_a_guide_in_the_table():
    assert set(GUIDES.values()) == set(TRAINERS)
    linked = set(re.findall(r"\(trainers/([\w-]+)\.md\)", (DOCS / "trainers.md").read_text()))
    assert linked == {page.stem for page in (DOCS / "trainers").glob("*.md")}


@pytest.mark.parametrize(("page", "text"), ON_GPUS)
def test_each_value_of_a_guides_grid_is_in_a_run_that_fits_an_h100(page, text):
    """Or a reader would get a plan in which something that the guide shows is silently impossible. The grids of
    examples/trainers/ are those of their guides and are executed: test_command.py, test_external.py."""
    grid = parse_grid(text, page)
    runs = [planned.run() for planned in build(grid, parse_site("gpu: h100\ngpus_per_node: 8\n", "site")).runs]
    assert {run.nodes for run in runs} == set(grid.nodes)
    assert {run.model for run in runs} == set(yaml.safe_load(text)["models"])
    axes = [axis for axis in ("tp", "pp", "cp", "zero", "recompute", "pp_schedule") if axis in grid.model_fields_set]
    for axis in axes:
        assert {getattr(run.layout, axis) for run in runs} == set(getattr(grid, axis)), axis
