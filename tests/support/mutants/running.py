"""Runs tests in a forked process, on a copy of the repository: the user's files never change."""

import ast
import importlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from coverage import Coverage, CoverageData
from hypothesis import settings

from tests.support.paths import REPOSITORY

PRELOADED = ("numpy", "pandas", "pyarrow.parquet", "pydantic", "hypothesis", "click.testing", "yaml", "msgspec")
"""libraries that most tests import: imported once, before the fork"""
CODE = ("sweep", "analysis", "bench_workloads")
PATIENCE, SHORTEST_S = 10.0, 60.0
"""a mutant that takes this many times as long as the tests took without it, and so long at least, is an endless loop"""
FIRST = (4, 16)
"""a mutant is run against so many of the quickest tests before the others"""
FAILED_CODES = {1, 2, 3, 4}
"""pytest's exit codes: a test failed, or the files could not even be imported"""


def copied(to: Path) -> Path:
    """A copy of the working tree's files that git knows or would know."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (REPOSITORY / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, to / name)
    return to


@contextmanager
def changed_file(path: Path, text: str) -> Iterator[None]:
    """The file with another text, and then as it was, time included: its bytecode holds again."""
    before, times = path.read_bytes(), path.stat()
    path.write_text(text)
    try:
        yield
    finally:
        path.write_bytes(before)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@dataclass(frozen=True)
class TestsOfLines:
    """Which tests run which line, and how long each test takes, from one run without a change."""

    by_line: dict[str, dict[int, set[str]]]
    """file -> line -> tests; the import of a file is the test ``""``"""
    seconds: dict[str, float]

    def of(self, file: str, line: int, source: str) -> list[str]:
        """The tests that run the line, the quickest first; all tests where only its import does."""
        lines = self.by_line.get(file, {})
        ran = lines.get(line) or set().union(*(lines.get(number, set()) for number in _statement(source, line)))
        tests = ran - {""} or (set(self.seconds) if ran else set())
        return sorted(tests, key=lambda test: (self.seconds[test], test))


def _statement(source: str, line: int) -> range:
    """The lines of the smallest statement that holds the line; of one with a body, its head."""
    best = range(line, line + 1)
    size = len(source)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or 0
            if (node.end_lineno or 0) - node.lineno < size and line <= max(last, node.lineno):
                best, size = range(node.lineno, max(last, node.lineno) + 1), (node.end_lineno or 0) - node.lineno
    return best


class Recorder:
    """A plug-in of pytest: a test's lines are those that run from its set-up to its tear-down."""

    def __init__(self, coverage: Coverage) -> None:
        self.coverage = coverage
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item):
        name, began = item.nodeid.partition("[")[0], time.monotonic()
        self.coverage.switch_context(name)
        found = yield
        self.coverage.switch_context("")
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - began
        return found


def tests_of_lines(copy: Path, sources: Sequence[str], tests: Sequence[str]) -> TestsOfLines:
    """Run the tests once without a change. Raises RuntimeError where one fails."""
    data, times = copy / "lines.coverage", copy / "seconds.txt"
    data.unlink(missing_ok=True)

    def run() -> int:
        coverage = Coverage(data_file=str(data), include=[str(copy / source) for source in sources])
        coverage.start()
        recorder = Recorder(coverage)
        code = pytest.main(_arguments(tests), plugins=[recorder])
        coverage.stop()
        coverage.save()
        times.write_text("".join(f"{took} {name}\n" for name, took in recorder.seconds.items()))
        return int(code)

    code, output = _forked(copy, run, limit_s=3600.0)
    if code != 0:
        raise RuntimeError(f"the tests fail without any change:\n{output[-3000:]}")
    stored = CoverageData(str(data))
    stored.read()
    by_line = {
        source: {n: set(names) for n, names in stored.contexts_by_lineno(str(copy / source)).items()}
        for source in sources
    }
    rows = [line.split(" ", 1) for line in times.read_text().splitlines()]
    return TestsOfLines(by_line, {name: float(took) for took, name in rows})


def end_of_tests(copy: Path, tests: Sequence[str], normal_s: float) -> str:
    """``killed`` where a test fails on the copy as it is now, ``out of time`` where none ends, else ``survived``."""
    limit_s = max(SHORTEST_S, PATIENCE * normal_s)

    def run() -> int:
        sys.dont_write_bytecode = True  # that of the run without a change stays: a file is known by second and size
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        # A few first: pytest imports the files of all the tests that it is given before it runs the first one
        batches = [tests[start:end] for start, end in itertools.pairwise((0, *FIRST, len(tests))) if tests[start:end]]
        return next(filter(None, (int(pytest.main([*_arguments(batch), "-x"])) for batch in batches)), 0)

    code, _ = _forked(copy, run, limit_s)
    if code is None:
        return "out of time"
    return "killed" if code in FAILED_CODES else "survived"


def preload(copy: Path) -> None:
    """Import the libraries that most tests need; each forked process imports the project itself, from the copy."""
    for name in [name for name in sys.modules if name.partition(".")[0] in CODE]:
        del sys.modules[name]
    sys.path[:] = [str(copy), *(path for path in sys.path if path not in ("", str(copy), str(REPOSITORY)))]
    for name in PRELOADED:
        importlib.import_module(name)


def _arguments(tests: Sequence[str]) -> list[str]:
    quiet = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not long and not slurm and not parallel"]
    return [*quiet, "--no-header", "--tb=line", *tests]


def _forked(copy: Path, run, limit_s: float) -> tuple[int | None, str]:
    """(exit code, or None after the limit; output) of a function that is called in a forked process."""
    log = copy / "output.txt"
    child = os.fork()
    if child == 0:
        code = 3
        try:
            _enter(copy, log)
            code = run()
        finally:
            os._exit(code)
    deadline = time.monotonic() + limit_s
    code: int | None = None
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return (code if code >= 0 else 1), log.read_text(errors="replace")
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return code, log.read_text(errors="replace")


def _enter(copy: Path, log: Path) -> None:
    """Become a process that imports the project from the copy and writes to the log."""
    os.setsid()
    os.chdir(copy)
    out = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(out, descriptor)
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    importlib.invalidate_caches()
    os.environ["PYTHONPATH"] = str(copy)
    settings.register_profile("mutants", deadline=None, derandomize=True)  # the same examples for every mutant
    settings.load_profile("mutants")
    os.environ.pop("SWEEP_REFERENCE_DATA", None)  # a score must not depend on data that only some machines have
