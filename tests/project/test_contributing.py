"""Every example of CONTRIBUTING.md, applied to a copy of the project: its commands pass, no other file is touched."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY

PAGE = (REPOSITORY / "CONTRIBUTING.md").read_text()
EXAMPLES = {part.split("\n", 1)[0]: part for part in PAGE.split("\n## ") if part.startswith("Add ")}
CHECKS = ("ruff check .", "ruff format --check .")
COPIED = ("sweep", "analysis", "bench_workloads", "benchmarks", "docs", "examples", "templates", "tests")


def blocks(text: str) -> list[tuple[str, str, str]]:
    """(file, language, text) of each block; a block without a file above it belongs to that of the one before."""
    found, file = [], ""
    for match in re.finditer(r"^`([\w./]+)`:$|^```(?!console)(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        file = match[1] or file
        if match[2]:
            found.append((file, match[2], match[3]))
    return found


def commands(text: str) -> list[str]:
    return re.findall(r"^\$ (python -m .*)$", text, re.MULTILINE)


def changed_text(text: str, block: str) -> str:
    """The text with the block's change, whose context and removed lines must be in it exactly once."""
    lines = [(line[:1], line[1:]) for line in block.splitlines()]
    before, after = ("".join(f"{line}\n" for sign, line in lines if sign != other) for other in "+-")
    assert text.count(before) == 1, f"{text.count(before)} times:\n{before}"
    return text.replace(before, after)


def apply(example: str, root: Path) -> set[str]:
    """Make the example's changes; the files that were changed or made."""
    for file, language, block in blocks(example):
        path = root / file
        if language == "diff":
            path.write_text(changed_text(path.read_text(), block))
        else:
            assert not path.exists(), file
            path.write_text(block)
    return {file for file, _, _ in blocks(example)}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The project as it is, under version control, so that what a change touches can be asked."""
    ignored = shutil.ignore_patterns("__pycache__", ".*_cache")
    for name in COPIED:
        shutil.copytree(REPOSITORY / name, tmp_path / name, symlinks=True, ignore=ignored)
    for path in REPOSITORY.iterdir():
        if path.is_file() and path.name != ".git":
            shutil.copy(path, tmp_path / path.name)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    return tmp_path


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout


def test_there_is_an_example_of_each_addition():
    assert set(EXAMPLES) == {
        f"Add a {thing}"
        for thing in ("workload", "trainer", "search strategy", "figure", "rule of diagnosis", "journal event")
    }


@pytest.mark.parametrize("title", EXAMPLES)
def test_an_example_fits_the_files_that_it_changes(title: str, tmp_path: Path) -> None:
    """Quick, of all of them; whether its commands then pass is tested below, of most at length."""
    for file, _, _ in blocks(EXAMPLES[title]):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        if (REPOSITORY / file).exists():
            shutil.copy(REPOSITORY / file, tmp_path / file)
    apply(EXAMPLES[title], tmp_path)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "title",
    [pytest.param(title, marks=[] if title == "Add a search strategy" else pytest.mark.long) for title in EXAMPLES],
)
def test_an_example_works_and_touches_what_it_names(title: str, copy: Path) -> None:
    named = apply(EXAMPLES[title], copy)
    for command in [*commands(EXAMPLES[title]), *CHECKS]:
        words = [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', command)]
        tool = [sys.executable] if words[0] == "python" else [sys.executable, "-m", words[0]]
        done = subprocess.run([*tool, *words[1:]], cwd=copy, capture_output=True, text=True, check=False, timeout=800)
        assert done.returncode == 0, f"{command}\n{done.stdout[-6000:]}{done.stderr[-2000:]}"
    imports = str(Path(sys.executable).with_name("lint-imports"))
    done = subprocess.run([imports, "--no-cache"], cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    touched = {line.split()[-1] for line in git(copy, "status", "--porcelain", "--untracked-files=all").splitlines()
               if line[1] != " "}  # fmt: skip
    generated = {file for file in touched - named if f"`{file}`" in EXAMPLES[title]}
    assert touched == named | generated
