"""Imports point down only, as docs/design.md ("Layout and layers") draws it. Sources are read, nothing is imported."""

from __future__ import annotations

import ast
import graphlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGES = ("sweep", "analysis", "bench_workloads")

# fmt: off
LAYERS: tuple[tuple[str, ...], ...] = (
    # From the ground up. A module may import its own layer and those before it.
    ("contract", "errors", "outcomes", "physics"),
    # Pure: values in, values out.
    ("agreement", "allocator", "axes", "diagnose", "expressions", "grid", "measured", "models", "nccl_log", "overrides",
     "plan", "planning", "policy", "quarantine", "records", "render", "search", "site", "starter", "state", "tally",
     "timeline", "topup", "validate", "plugins", "yaml_lines"),
    ("store", "collect", "extension", "journal_writer", "lease", "nodes", "rerun", "snapshot", "sweeps"),
    ("detect", "executors", "foreign", "inputs", "trackers"),
    ("pilot",),
    ("cancel", "dry_run", "launcher", "spare_memory"),
    ("cli",),
)
PURE = frozenset(LAYERS[0] + LAYERS[1]) - {"contract", "plugins"}
"""contract.py writes to its pipe, plugins.py looks up entry points: the rest knows no clock, file or process"""
IMPURE_MODULES = frozenset({
    "asyncio", "datetime", "ftplib", "glob", "http", "io", "multiprocessing", "os", "pathlib", "psutil", "random",
    "requests", "select", "shutil", "socket", "submitit", "subprocess", "tempfile", "threading", "time", "urllib",
})
# fmt: on
ANALYSIS_MAY_IMPORT = ("sweep.physics", "sweep.records", "sweep.errors", "analysis")
WORKLOADS_MAY_IMPORT = ("sweep.physics", "sweep.contract", "bench_workloads")
ONLY_IN = {
    # third-party package -> the only files that may import it
    "submitit": ("sweep/executors/slurm.py",),
    "torch": ("bench_workloads/",),
    "matplotlib": ("analysis/",),
    "pandas": ("analysis/", "sweep/collect.py"),
    "simpleeval": ("sweep/expressions.py",),
    "jinja2": ("sweep/render.py", "analysis/", "bench_workloads/trainers/"),
}


@dataclass(frozen=True)
class Import:
    """One import statement's target, as a dotted name."""

    file: str
    line: int
    target: str
    at_top: bool
    """runs when the file is imported, and not only when a function is called"""


def sources() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py"))


@cache
def imports(path: Path) -> tuple[Import, ...]:
    """All imports of a file but those for type checkers alone."""
    tree = ast.parse(path.read_text(), str(path))
    name = str(path.relative_to(REPOSITORY))
    return tuple(
        Import(name, node.lineno, target, at_top)
        for node, at_top in statements(tree, at_top=True)
        for target in targets(node, path)
    )


def statements(node: ast.AST, *, at_top: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, at_top
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from statements(child, at_top=at_top and not inside)


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


def layer_of(part: str) -> int:
    for level, parts in enumerate(LAYERS):
        if part in parts:
            return level
    raise AssertionError(f"sweep/{part} stands in no layer: put it in LAYERS of this test, and in docs/design.md")


def part_of(module: str) -> str | None:
    """The part of sweep that a module belongs to: sweep.pilot.leader is of pilot."""
    names = module.split(".")
    return names[1] if names[0] == "sweep" and len(names) > 1 else None


def within(target: str, allowed: tuple[str, ...]) -> bool:
    return any(target == name or target.startswith(f"{name}.") for name in allowed)


def part_of_file(path: Path) -> str | None:
    relative = path.relative_to(REPOSITORY / "sweep")
    return None if str(relative) == "__init__.py" else relative.parts[0].removesuffix(".py")


def sweep_files() -> list[tuple[Path, str]]:
    found = ((path, part_of_file(path)) for path in sources() if path.is_relative_to(REPOSITORY / "sweep"))
    return [(path, part) for path, part in found if part is not None]


def test_there_is_something_to_look_at() -> None:
    assert len(sweep_files()) > 20
    assert [i.target for i in imports(REPOSITORY / "sweep/executors/slurm.py") if i.target == "submitit"]


def test_imports_point_down() -> None:
    wrong = []
    for path, part in sweep_files():
        level = layer_of(part)
        for found in imports(path):
            target = part_of(found.target)
            if target and layer_of(target) > level:
                wrong.append(f"{found.file}:{found.line}: {part} imports {found.target}, a layer above it")
    assert not wrong, "\n".join(wrong)


def test_sweep_never_imports_its_plug_ins_or_its_readers() -> None:
    wrong = [
        f"{found.file}:{found.line}: {found.target}"
        for path, part in sweep_files()
        for found in imports(path)
        if part != "cli"
        and (found.target.startswith("analysis") or (found.target.startswith("bench_workloads") and part != "plugins"))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("package", "allowed"), [("analysis", ANALYSIS_MAY_IMPORT), ("bench_workloads", WORKLOADS_MAY_IMPORT)]
)
def test_what_stands_beside_sweep_sees_little_of_it(package: str, allowed: tuple[str, ...]) -> None:
    wrong = [
        f"{found.file}:{found.line}: {found.target}"
        for path in (REPOSITORY / package).rglob("*.py")
        for found in imports(path)
        if found.target.split(".")[0] in PACKAGES and not within(found.target, allowed)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_contract_needs_the_standard_library_only() -> None:
    targets = {found.target.split(".")[0] for found in imports(REPOSITORY / "sweep/contract.py")}
    assert targets <= sys.stdlib_module_names, targets - sys.stdlib_module_names


def test_pure_parts_know_no_clock_file_or_process() -> None:
    wrong = []
    for path, part in sweep_files():
        if part in PURE:
            wrong += [
                f"{i.file}:{i.line}: {i.target}" for i in imports(path) if i.target.split(".")[0] in IMPURE_MODULES
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
        for found in imports(path)
        if found.target.split(".")[0] == package and not found.file.startswith(ONLY_IN[package])
    ]
    assert not wrong, f"{package}: {wrong}"


def test_no_cycles_among_files() -> None:
    graph: dict[Path, set[Path]] = {}
    for path in sources():
        needed = {file_of(found.target) for found in imports(path) if found.at_top}
        graph[path] = {file for file in needed if file is not None and file != path}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the files
