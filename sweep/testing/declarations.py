"""What a workload's declaration must be, checked without a rank."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
from packaging.specifiers import SpecifierSet

from sweep.contract import DERIVED, LAYOUT_FIELDS, Rule, Run, Workload
from sweep.inputs.grid import COLUMNS
from sweep.plugins import load_object
from sweep.testing.examples import row_of, variants
from sweep.testing.findings import named

AXES = frozenset({*LAYOUT_FIELDS, "dtype", "compile"})
HEAVY = ("torch", "pandas", "matplotlib")
"""a declaration is read by every `sweep` command: it must not import these"""


def declaration_findings(workload: Workload, run: Run) -> Iterator[str]:
    """Everything that is wrong with the declaration. ``run``: one that the rules must accept."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", workload.name):
        yield f"name: {workload.name!r} is not letters, digits and . _ -"
    yield from (f"axes: {axis!r} is not a layout field, dtype or compile" for axis in sorted(workload.axes - AXES))
    yield from _main_findings(workload)
    yield from _parameter_findings(workload)
    yield from _rule_findings(workload, run)
    yield from _preload_findings(workload)


def _main_findings(workload: Workload) -> Iterator[str]:
    try:
        main = load_object(workload.main)
        inspect.signature(main).bind("run", "progress")
    except Exception as error:  # third-party code: loading it may raise anything
        yield f"main: {workload.main!r} is not a function of (run, progress): {named(error)}"


def _parameter_findings(workload: Workload) -> Iterator[str]:
    for name, default in workload.params.items():
        if not isinstance(default, str | int | float | bool | None):
            yield f"params: {name} = {default!r} is not text, a number, true, false or null"
        if name in COLUMNS or name in DERIVED:
            yield f"params: {name!r} is also the name of an axis or of a column"
        if default not in workload.choices.get(name, (default,)):
            yield f"choices: the default {default!r} of {name} is not among {workload.choices[name]}"
    unknown = sorted(workload.choices.keys() - workload.params.keys() - AXES)
    yield from (f"choices: {name!r} is neither an axis nor a parameter" for name in unknown)
    for name in sorted(workload.effects.keys() - workload.params.keys() - AXES):
        yield f"effects: {name!r} is neither an axis nor a parameter"
    switch = workload.one_process_param
    if switch and not isinstance(workload.params.get(switch), bool):
        yield f"one_process_param: {switch!r} is not a parameter that is true or false"


def _rule_findings(workload: Workload, run: Run) -> Iterator[str]:
    names = [rule.name for rule in workload.rules]
    yield from (f"rules: two are named {name!r}" for name in sorted(set(names)) if names.count(name) > 1)
    runs = [run, *(changed for pair in variants(workload, run).values() for changed in pair)]
    for rule in workload.rules:
        yield from (f"rule {rule.name}: {finding}" for finding in _findings_of(rule, workload, runs))


def _findings_of(rule: Rule, workload: Workload, runs: list[Run]) -> Iterator[str]:
    """``runs``: the first is one that the rule must accept."""
    rows = [row_of(workload, run) for run in runs]
    try:
        SpecifierSet(rule.torch)
        whole = np.asarray(rule.broken({name: np.array([row[name] for row in rows]) for name in rows[0]}))
        single = [bool(np.all(rule.broken(row))) for row in rows]
        reasons = [rule.reason.format_map(row) for row, broken in zip(rows, single, strict=True) if broken]
    except Exception as error:  # third-party code: a rule may raise anything
        yield f"cannot be evaluated: {named(error)}"
        return
    if whole.dtype != np.bool_ or whole.shape not in ((), (len(runs),)):
        yield f"broken gives {whole.dtype} of shape {whole.shape} for {len(runs)} candidates, not a boolean each"
    elif np.broadcast_to(whole, len(runs)).tolist() != single:
        yield "broken gives another answer for arrays than for single candidates"
    elif single[0] and not rule.torch:  # a rule on torch versions need not hold for the one that is here
        yield f"rejects the run that is checked ({reasons[0]}): pass `run=` with one that it accepts"


_PRELOAD = """
import importlib, os, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(len(os.listdir("/proc/self/task")))
"""


def _preload_findings(workload: Workload) -> Iterator[str]:
    """The modules are importable, and leave no thread: ranks are forked from the process that imported them."""
    if not workload.preload or not sys.platform.startswith("linux"):
        return
    done = _python(_PRELOAD, *workload.preload)
    if done.returncode:
        yield f"preload: {', '.join(workload.preload)} cannot be imported: {_last_line(done.stderr)}"
    elif int(done.stdout.split()[-1]) > 1:
        yield f"preload: importing {', '.join(workload.preload)} leaves threads: ranks cannot be forked from it"


_DECLARE = """
import sys
from sweep.plugins import WORKLOAD
WORKLOAD.find(sys.argv[1])
print(*(name for name in sys.argv[2:] if name in sys.modules))
"""


def registration_findings(name: str) -> Iterator[str]:
    """Importing the declaration loads nothing heavy."""
    done = _python(_DECLARE, name, *HEAVY)
    if done.returncode:
        yield f"the declaration cannot be imported: {_last_line(done.stderr)}"
    elif loaded := done.stdout.strip():
        yield f"importing the declaration imports {loaded}: import it inside main"


def _python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]
