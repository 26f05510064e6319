"""Every regular expression of the product takes time in proportion to its input, whatever that is."""

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import pytest

from bench_workloads.trainers import TRAINERS
from sweep.diagnose.scan import RULES
from sweep.executors import slurm_states
from sweep.plugins import TRAINER
from tests.support.example_runs import example_run
from tests.support.hostile_texts import Hostile, cpu_s, grows_faster, hostile, text_of
from tests.support.paths import REPOSITORY
from tests.support.trainers.layouts import PARAMS

PACKAGES = ("sweep", "analysis", "bench_workloads")
USES = frozenset({"search", "match", "fullmatch", "split", "sub", "subn", "findall", "finditer"})


@dataclass
class Used:
    """One pattern."""

    where: str
    pattern: re.Pattern[str]
    uses: set[str]

    def run(self, text: str) -> None:
        """As the product does."""
        for use in self.uses or {"search"}:
            if use in ("match", "fullmatch", "search"):
                getattr(self.pattern, use)(text)
            else:
                for _ in self.pattern.finditer(text):
                    pass


@cache
def sources() -> tuple[tuple[ModuleType, ast.Module], ...]:
    """The modules of the product that import ``re``, and their sources."""
    found = []
    for path in sorted(path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py")):
        tree = ast.parse(path.read_text())
        if any(isinstance(node, ast.Import) and node.names[0].name == "re" for node in ast.walk(tree)):
            name = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")
            found.append((importlib.import_module(name), tree))
    return tuple(found)


@cache
def collected() -> tuple[Used, ...]:
    """The patterns of texts, each once."""
    found: dict[str, Used] = {}
    for used in (*_of_sources(), *_of_tables()):
        if isinstance(used.pattern.pattern, str):
            found.setdefault(f"{used.pattern.flags} {used.pattern.pattern}", used).uses.update(used.uses)
    return tuple(found.values())


def unknown() -> set[str]:
    """The calls of ``re`` whose pattern only a running program knows."""
    calls = [(module, call) for module, tree in sources() for call in _calls_of_re(tree)]
    return {f"{module.__name__}: {ast.unparse(call)}" for module, call in calls if _pattern(call, module) is None}


def _of_sources() -> Iterator[Used]:
    for module, tree in sources():
        called = _uses_of_names(tree)
        values = {name: list(_within(value)) for name, value in vars(module).items()}
        others = {use for name, uses in called.items() if not values.get(name) for use in uses}
        for name, patterns in values.items():
            uses = called.get(name, set()) if isinstance(vars(module)[name], re.Pattern) else others
            yield from (Used(f"{module.__name__}.{name}", pattern, set(uses)) for pattern in patterns)
        for call in _calls_of_re(tree):
            pattern = _pattern(call, module)
            if pattern is not None:
                yield Used(f"{module.__name__}:{call.lineno}", pattern, {call.func.attr} & USES)  # type: ignore[attr-defined]


def _of_tables() -> Iterator[Used]:
    """Those that are compiled where they are needed."""
    for text, _ in slurm_states._MEANINGS:
        yield Used("meaning of a rejection", re.compile(text, re.IGNORECASE), {"search"})
    for text, _, _ in slurm_states._NEVER + slurm_states._LATER:
        yield Used("meaning of a reason to wait", re.compile(text), {"match"})
    for rule in RULES:
        yield Used(f"rule {rule.name}", rule.pattern, {"search"})
    for name in TRAINERS:
        adapter = TRAINER.find(name)
        reader = adapter.reader(example_run(adapter.workload, PARAMS.get(name, {})))
        yield from (Used(f"reader of {name}", each, {"search", "finditer"}) for each in _within(vars(reader)))
        yield from (Used(f"hint of {name}", re.compile(hint), {"search"}) for hint in adapter.hints)


def _within(value: Any) -> Iterator[re.Pattern[str]]:
    """The patterns in a value, at any depth of dicts, lists, tuples and the readers of trainers."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict | list | tuple):
        for each in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _within(each)
    elif type(value).__module__.startswith("bench_workloads.trainers") and hasattr(value, "__dict__"):
        yield from _within(vars(value))


def _uses_of_names(tree: ast.AST) -> dict[str, set[str]]:
    """Name -> the methods of a pattern that the module calls on it."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in USES:
            found.setdefault(node.value.id, set()).add(node.attr)
    found.pop("re", None)
    return found


def _calls_of_re(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and re.match(r"re\.(?!escape)[a-z]", ast.unparse(node.func)) and node.args:
            yield node


def _pattern(call: ast.Call, module: ModuleType) -> re.Pattern[str] | None:
    """What the call takes, where it names only what the module defines."""
    given = [*call.args[1:], *(keyword.value for keyword in call.keywords)]
    flags = [node for node in given if ast.unparse(node).startswith("re.")]
    try:
        text, *rest = (eval(ast.unparse(each), dict(vars(module))) for each in [call.args[0], *flags])
    except NameError:
        return None
    return re.compile(text, *rest)


MEGABYTE = 1_000_000
SIZES = (1000, 4000)
"""characters: a square shows at these, and each of the many texts is soon read"""
ELSEWHERE = {
    "sweep.diagnose.model: re.compile(self.expression, re.IGNORECASE)": "a rule's",
    "sweep.executors.slurm_states: re.match(pattern, plain)": "a meaning's",
    "sweep.executors.slurm_states: re.search(pattern, message, re.IGNORECASE)": "a meaning's",
    "sweep.redaction: re.compile(pattern, re.VERBOSE)": "of its table",
    "sweep.redaction: re.compile('|'.join(map(re.escape, longest_first)))": "known values as they are",
    "bench_workloads.trainers.driver.driver: re.search(pattern, line)": "a hint's",
    "bench_workloads.trainers.driver.reading: re.compile(text)": "a reader's",
    "bench_workloads.trainers.driver.reading: re.compile(begun)": "a reader's",
    "sweep.diagnose.tracebacks: re.compile('^' + _CLOCK.join(map(re.escape, re.split(_CLOCK, prefix))))": "a prefix",
    "sweep.foreign.mapping: re.compile(text)": "only compiled",
    "sweep.foreign.suggest: re.compile(f'(?i)(?<![a-z]){name}[ =:_-]*(\\\\d+)')": "of its table",
    "sweep.foreign.convert: re.search(reading.match, text[:CELL_CHARACTERS])": "the user's own",
    "sweep.pilot.job: re.search(f'^{re.escape(job)} (\\\\S+) end$', shown, re.MULTILINE)": "a name, and a word",
    "sweep.pilot.job: re.search(f'^{re.escape(node)} (\\\\S+) end$', shown, re.MULTILINE)": "a name, and a word",
}
"""calls of ``re`` whose pattern is not in the source: whose it is. All but the user's own are collected"""


def test_every_pattern_of_the_source_is_known():
    assert unknown() == set(ELSEWHERE), "name whose it is; where it is in a table, collect it"
    origins = {used.where.split()[0] for used in collected()}
    assert origins >= {"rule", "reader", "hint", "meaning", "sweep.redaction._AFTER", "sweep.diagnose.scan._PROGRESS"}


def test_no_pattern_takes_the_square_of_its_input():
    """On texts that are made from the pattern."""
    slow = {}
    for used in collected():
        for one in hostile(used.pattern):
            if grows_faster(lambda size, used=used, one=one: used.run(text_of(one, size)), SIZES):
                slow.setdefault(used.where, one)
    assert slow == {}


def test_the_test_finds_what_is_slow():
    for pattern, use in ((r"\d+ ms", "search"), (r"a.*b", "search")):
        used = Used("here", re.compile(pattern), {use})
        assert any(
            grows_faster(lambda size, one=one: used.run(text_of(one, size)), SIZES)  # noqa: B023
            for one in hostile(used.pattern)
        ), pattern


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_no_pattern_takes_over_a_second_for_a_megabyte():
    """On a quiet machine, so twice that here; and whatever follows a repetition, none grows faster than its input."""
    slow = {}
    for used in collected():
        took = {one: _slowest(used, one) for one in hostile(used.pattern)}
        worst = max(took, key=lambda one: took[one])
        if cpu_s(lambda: used.run(text_of(worst, MEGABYTE)), 3) > 2.0:  # noqa: B023 (called at once)
            slow[used.where] = worst
    assert slow == {}


def _slowest(used: Used, one: Hostile) -> float:
    ends = ("", " ", "\n", "x", "\x01")
    for end in ends:
        size = [500, 2000, 8000, 32_000]
        assert not grows_faster(lambda size, end=end: used.run(text_of(one, size, end)), size), (used.where, one, end)
    return cpu_s(lambda: used.run(text_of(one, 32_000)))
