"""What no import contract can say: purity, where third parties may be imported, the size of files.

Sources are read, nothing is imported. Which package may import which: the contracts in pyproject.toml (`make lint`).
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY

PACKAGES = ("sweep", "analysis", "bench_workloads")

PURE = (
    *(
        "sweep/errors.py",
        "sweep/expressions.py",
        "sweep/outcomes.py",
        "sweep/redaction.py",
        "sweep/physics/",
        "sweep/diagnose/",
        "sweep/checks/",
    ),
    *("sweep/inputs/", "sweep/planning/", "sweep/state/", "sweep/search/", "sweep/records/"),
    *("sweep/launcher/pilots_wanted.py", "sweep/executors/script.py"),
    *("sweep/pilot/messages.py", "sweep/pilot/timeouts.py", "sweep/pilot/agent/heartbeats.py"),
    *("sweep/pilot/agent/fork_messages.py", "sweep/pilot/leader/attempt_state.py"),
    *("sweep/pilot/leader/attempt_result.py", "sweep/pilot/leader/free_nodes.py"),
    *("sweep/pilot/leader/hang_suspects.py", "sweep/pilot/leader/watchdog.py"),
    "sweep/pilot/leader/node_fate.py",
    *("sweep/pilot/leader/pilot_time.py", "sweep/pilot/leader/record.py"),
)
"""values in, values out: they know no clock, file or process"""
NOT_PURE = (
    *("sweep/inputs/load.py", "sweep/inputs/detect.py", "sweep/inputs/starter_files.py"),
    *("sweep/records/collect.py", "sweep/records/skipped.py"),
)
IMPURE_MODULES = frozenset({
    "asyncio", "datetime", "ftplib", "glob", "http", "io", "multiprocessing", "os", "pathlib", "psutil", "random",
    "requests", "select", "shutil", "socket", "submitit", "subprocess", "tempfile", "threading", "time", "urllib",
})  # fmt: skip
ONLY_IN = {
    # third-party package -> the only files that may import it
    "submitit": ("sweep/executors/slurm.py",),
    "torch": ("bench_workloads/",),
    "torchao": ("bench_workloads/transformer/float8.py",),
    "matplotlib": ("analysis/",),
    "pandas": ("analysis/", "sweep/records/collect.py", "sweep/library/winners.py"),
    "simpleeval": ("sweep/expressions.py",),
    "msgspec": (
        "sweep/pilot/",
        "sweep/records/",
        "sweep/state/events.py",
        "sweep/state/parts.py",
        "sweep/store/",
        "sweep/trackers/tracking.py",
    ),
    "jinja2": ("sweep/executors/script.py", "analysis/", "bench_workloads/trainers/"),
}


@dataclass(frozen=True)
class Import:
    """One import statement's target, as a dotted name, wherever in the file the statement is."""

    file: str
    line: int
    target: str
    for_types: bool
    """under TYPE_CHECKING: never runs"""


def sources() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py"))


@cache
def imports(path: Path) -> tuple[Import, ...]:
    """All imports of a file, those inside functions included."""
    tree = ast.parse(path.read_text(), str(path))
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    for_types = {id(node) for block in blocks for node in ast.walk(block)}
    name = str(path.relative_to(REPOSITORY))
    return tuple(
        Import(name, node.lineno, target, id(node) in for_types)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for target in targets(node, path)
    )


def run_imports(path: Path) -> list[Import]:
    return [found for found in imports(path) if not found.for_types]


def targets(node: ast.Import | ast.ImportFrom, path: Path) -> list[str]:
    """``from sweep import store`` is an import of sweep.store."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert node.level == 0, f"{path}:{node.lineno}: relative import; write it in full"
    module = node.module or ""
    submodules = [f"{module}.{alias.name}" for alias in node.names]
    found = [name for name in submodules if file_of(name)]
    return found if len(found) == len(submodules) else [module, *found]


def file_of(module: str) -> Path | None:
    path = REPOSITORY.joinpath(*module.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


def test_the_contract_needs_the_standard_library_only() -> None:
    targets = {found.target.split(".")[0] for found in imports(REPOSITORY / "sweep/contract.py")}
    assert targets <= sys.stdlib_module_names, targets - sys.stdlib_module_names


def pure_files() -> list[Path]:
    names = {path: str(path.relative_to(REPOSITORY)) for path in sources()}
    return [path for path, name in names.items() if name.startswith(PURE) and name not in NOT_PURE]


def test_pure_parts_know_no_clock_file_or_process() -> None:
    assert {path.parts[-2] for path in pure_files()} >= {name.split("/")[1] for name in PURE if name.endswith("/")}
    wrong = []
    for path in pure_files():
        wrong += [
            f"{i.file}:{i.line}: {i.target}" for i in run_imports(path) if i.target.split(".")[0] in IMPURE_MODULES
        ]
        wrong += [f"{path.relative_to(REPOSITORY)}:{line}: open()" for line in opens(path)]
    assert not wrong, "\n".join(wrong)


def opens(path: Path) -> list[int]:
    """Lines that call open(), or read or write a path."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    named = {"read_text", "read_bytes", "write_text", "write_bytes"}
    return [
        call.lineno
        for call in calls
        if (isinstance(call.func, ast.Name) and call.func.id == "open")
        or (isinstance(call.func, ast.Attribute) and call.func.attr in named)
    ]


@pytest.mark.parametrize("package", ONLY_IN)
def test_third_parties_stay_where_they_belong(package: str) -> None:
    wrong = [
        f"{found.file}:{found.line}"
        for path in sources()
        for found in run_imports(path)
        if found.target.split(".")[0] == package and not found.file.startswith(ONLY_IN[package])
    ]
    assert not wrong, f"{package}: {wrong}"


def test_nothing_inside_uses_the_public_names_of_sweep() -> None:
    """They are for scripts: inside, a name is imported from where it is defined."""
    wrong = [f"{i.file}:{i.line}" for path in sources() for i in imports(path) if i.target == "sweep"]
    own = [place for place in wrong if not place.startswith("sweep/__init__.py")]
    assert not own, own


def test_every_package_has_an_import_contract() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 has it")
    contracts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert not [contract["name"] for contract in contracts if "ignore_imports" in contract]
    held = {name for contract in contracts for name in contract.get("containers", ())}
    packages = {str(path.parent.relative_to(REPOSITORY)) for path in sources() if path.name == "__init__.py"}
    assert {name.replace("/", ".") for name in packages} == held


def test_files_are_small_and_the_top_level_is_a_handful() -> None:
    lengths = {str(path.relative_to(REPOSITORY)): len(path.read_text().splitlines()) for path in sources()}
    assert not {name: length for name, length in lengths.items() if length > 400}
    assert len(list((REPOSITORY / "sweep").glob("*.py"))) <= 10


def test_the_files_that_are_named_here_exist() -> None:
    named = [*PURE, *NOT_PURE, *(name for names in ONLY_IN.values() for name in names)]
    assert not [name for name in named if not (REPOSITORY / name).exists()]


def test_tests_share_helpers_in_support_and_use_public_names() -> None:
    files = sorted((REPOSITORY / "tests").rglob("*.py"))
    others = [
        f"{i.file}:{i.line}: {i.target}"
        for path in files
        for i in imports(path)
        if i.target.startswith("tests.") and not i.target.startswith("tests.support")
    ]
    assert not others, others
    private = [
        f"{path.relative_to(REPOSITORY)}:{node.lineno}: {alias.name}"
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__")
    ]
    assert not private, private
