"""What no import contract can say: purity, where third parties may be imported, what tests import.

Sources are read, nothing is imported. Which package may import which: the contracts in pyproject.toml (`make lint`).
"""

import ast
import re
import sys
from functools import cache
from pathlib import Path

import grimp
import pytest

from tests.support.paths import REPOSITORY

PACKAGES = ("sweep", "analysis", "bench_workloads")
PURE = (
    *("sweep.errors", "sweep.expressions", "sweep.outcomes", "sweep.redaction", "sweep.physics", "sweep.diagnose"),
    *("sweep.checks", "sweep.inputs", "sweep.planning", "sweep.state", "sweep.search", "sweep.records"),
    *("sweep.launcher.pilots_wanted", "sweep.executors.script", "sweep.pilot.messages", "sweep.pilot.timeouts"),
    *("sweep.pilot.agent.heartbeats", "sweep.pilot.agent.fork_messages", "sweep.pilot.leader.attempt_state"),
    *("sweep.pilot.leader.free_nodes", "sweep.pilot.leader.hang_suspects"),
    *("sweep.pilot.leader.watchdog", "sweep.pilot.leader.node_fate", "sweep.pilot.leader.pilot_time"),
    "sweep.pilot.leader.record",
)
"""values in, values out: they know no clock, file or process"""
NOT_PURE = (
    *("sweep.inputs.load", "sweep.inputs.detect", "sweep.inputs.starter_files"),
    *("sweep.records.collect", "sweep.records.skipped"),
)
IMPURE_MODULES = frozenset({
    "asyncio", "datetime", "ftplib", "glob", "http", "io", "multiprocessing", "os", "pathlib", "psutil", "random",
    "requests", "select", "shutil", "socket", "submitit", "subprocess", "tempfile", "threading", "time", "urllib",
})  # fmt: skip
IMPURE_CALLS = r"open|.*\.(read|write)_(text|bytes)"
ONLY_IN = {
    # third-party package -> the only modules that may import it
    "submitit": ("sweep.executors.slurm",),
    "torch": ("bench_workloads",),
    "torchao": ("bench_workloads.transformer.float8",),
    "matplotlib": ("analysis",),
    "pandas": ("analysis", "sweep.records.collect", "sweep.library.winners"),
    "simpleeval": ("sweep.expressions",),
    "msgspec": (
        *("sweep.pilot", "sweep.records", "sweep.state.events", "sweep.state.parts", "sweep.store"),
        "sweep.trackers.tracking",
    ),
    "jinja2": ("sweep.executors.script", "analysis", "bench_workloads.trainers"),
}


@cache
def graph(*, types: bool) -> grimp.ImportGraph:
    """Who imports what, inside functions too; with types, also what is imported for annotations only."""
    return grimp.build_graph(*PACKAGES, include_external_packages=True, exclude_type_checking_imports=not types)


def within(module: str, names: tuple[str, ...]) -> bool:
    return any(f"{module}.".startswith(f"{name}.") for name in names)


def path_of(module: str) -> Path:
    path = REPOSITORY.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def test_the_contract_needs_the_standard_library_only() -> None:
    found = graph(types=True).find_modules_directly_imported_by("sweep.contract")
    assert found <= sys.stdlib_module_names, found - sys.stdlib_module_names


def test_pure_parts_know_no_clock_file_or_process() -> None:
    pure = [module for module in graph(types=False).modules if within(module, PURE) and not within(module, NOT_PURE)]
    imported = {module: graph(types=False).find_modules_directly_imported_by(module) for module in pure}
    assert not {module: found for module in pure if (found := imported[module] & IMPURE_MODULES)}
    calls = [
        (module, node.lineno)
        for module in pure
        for node in ast.walk(ast.parse(path_of(module).read_text()))
        if isinstance(node, ast.Call) and re.fullmatch(IMPURE_CALLS, ast.unparse(node.func))
    ]
    assert not calls, calls


@pytest.mark.parametrize("package", ONLY_IN)
def test_third_parties_stay_where_they_belong(package: str) -> None:
    importers = graph(types=False).find_modules_that_directly_import(package)
    assert importers
    assert not [module for module in importers if not within(module, ONLY_IN[package])]


def test_axes_of_the_built_in_trainer_know_neither_each_other_nor_are_known_but_by_what_builds_and_runs_it() -> None:
    """Each can be read and changed alone: what they share is the model, the meshes and the weights."""
    parallel = ("context_parallel", "data_parallel", "expert_parallel", "pipeline", "tensor_parallel")
    trainer = "bench_workloads.transformer"
    found = {
        importer
        for axis in (*parallel, "compiling", "recompute")
        for importer in graph(types=True).find_modules_that_directly_import(f"{trainer}.{axis}")
    }
    assert found <= {f"{trainer}.build", f"{trainer}.main"}, found


def test_nothing_inside_uses_the_public_names_of_sweep() -> None:
    """They are for scripts: inside, a name is imported from where it is defined."""
    assert not graph(types=True).find_modules_that_directly_import("sweep")


def test_every_package_has_an_import_contract() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 has it")
    contracts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert not [contract["name"] for contract in contracts if "ignore_imports" in contract]
    held = {name for contract in contracts for name in contract.get("containers", ())}
    modules = graph(types=True).modules
    assert held == {name for name in modules if within(name, PACKAGES) and path_of(name).name == "__init__.py"}


def test_the_modules_that_are_named_here_exist() -> None:
    named = {*PURE, *NOT_PURE, *(name for names in ONLY_IN.values() for name in names)}
    assert named <= graph(types=True).modules


def test_tests_share_helpers_in_support_and_use_public_names() -> None:
    wrong = [
        f"{path.relative_to(REPOSITORY)}:{node.lineno}"
        for path in sorted((REPOSITORY / "tests").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        for name in (f"{node.module}.{alias.name}" for alias in node.names)
        if (within(name, ("tests",)) and not within(name, ("tests.support",)))
        or (within(name, PACKAGES) and ("._" in name and not name.rpartition(".")[2].startswith("__")))
    ]
    assert not wrong, wrong
