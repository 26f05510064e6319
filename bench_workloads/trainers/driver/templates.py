"""Templates of command lines and configuration files, and their variables."""

from __future__ import annotations

import ast
import dataclasses
import operator
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sweep.contract import Layout, Run, StatedRun
from sweep.physics.shapes import ModelShape

LONGEST = 1 << 20
"""characters that are laid out of a record's text"""
_LARGE = 2.0**62
_OPERATIONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FACTS = (
    *("model", "nodes", "gpus", "gpus_per_node", "sequence_length", "global_batch_sequences", "global_batch_tokens"),
    *("dtype", "compile", "warmup_iterations", "iterations"),
)
_NAMES = {*_FACTS, "steps", *(field.name for kind in (Layout, ModelShape) for field in dataclasses.fields(kind))}
_PLACE = re.compile(r"\{\{([^{}]{0,200})\}\}")


def variables(run: Run, steps: int) -> dict[str, Any]:
    """A template's variables: layout, shape and sizes."""
    facts = {name: getattr(run, name) for name in _FACTS}
    return {**run.shape, **dataclasses.asdict(run.layout), **facts, "steps": steps}


def renders(text: str, further: Iterable[str] = ()) -> bool:
    """Whether the text is a template of ``variables`` and ``further`` ones. What it filters, tests or sets may lack."""
    import jinja2
    from jinja2 import nodes

    environment = jinja2.Environment(autoescape=False)  # noqa: S701
    try:
        tree = environment.parse(text)  # and no more: jinja2.meta evaluates constants, of any size
    except (jinja2.TemplateError, RecursionError, ValueError):
        return False
    tested = {name.name for part in tree.find_all((nodes.Filter, nodes.Test)) for name in part.find_all(nodes.Name)}
    bound = {name.name for name in tree.find_all(nodes.Name) if name.ctx != "load"}
    bound |= {macro.name for macro in tree.find_all(nodes.Macro)} | {"loop" for _ in tree.find_all(nodes.For)}
    used = {name.name for name in tree.find_all(nodes.Name)}
    return used <= {*_NAMES, *further, *tested, *bound, *environment.globals}


def render(run: Run, text: str, values: Mapping[str, Any], *, quoted: bool) -> str:
    """The run's template with its values; ``quoted``: each quoted as one shell argument. Raises ValueError.

    In jinja2's sandbox: a grid from somebody else can lay out a command line, and reach no Python object behind it. A
    record's text is no template: only names and arithmetic are replaced.
    """
    if isinstance(run, StatedRun):
        return _laid_out(text, values, shlex.quote if quoted else str)
    import jinja2
    from jinja2.sandbox import SandboxedEnvironment

    environment = SandboxedEnvironment(
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        finalize=(lambda value: shlex.quote(str(value))) if quoted else (lambda value: value),
        keep_trailing_newline=True,
    )
    try:
        return environment.from_string(text).render(values)
    except jinja2.TemplateError as error:
        raise ValueError(f"invalid value for a template: {type(error).__name__}: {error}") from error


def _laid_out(text: str, values: Mapping[str, Any], spelled: Callable[[str], str]) -> str:
    """The text with the values of its names. Time and length are bounded, whatever it states."""
    parts, done, room = [], 0, LONGEST
    for place in _PLACE.finditer(text):
        parts += [text[done : place.start()], spelled(str(_number_or_name(place[1], values)))]
        done, room = place.end(), room - sum(map(len, parts[-2:]))
        if room < 0:
            break
    parts.append(text[done:])
    if room < len(parts[-1]):
        raise ValueError(f"a record's text is laid out up to {LONGEST} characters")
    if rest := re.search(r"\{[{%#].{0,40}", " ".join(parts[::2])):
        raise ValueError(f"of a record's text only names and arithmetic are replaced, not {rest[0]!r}")
    return "".join(parts)


def _number_or_name(text: str, values: Mapping[str, Any]) -> Any:
    """``dp``, or arithmetic such as ``dp * 2``."""
    try:
        return _value(ast.parse(text.strip(), mode="eval").body, values)
    except (SyntaxError, ArithmeticError, RecursionError, MemoryError, ValueError) as error:
        raise ValueError(f"of a record's text only names and arithmetic are replaced, not {text!r}: {error}") from None


def _value(node: ast.AST, values: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        if node.id not in values:
            raise ValueError(f"{node.id!r} is undefined")
        return values[node.id]
    if isinstance(node, ast.Constant):
        return _number(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        left, right = (_number(_value(side, values)) for side in (node.left, node.right))
        return _number(_OPERATIONS[type(node.op)](left, right))
    raise ValueError("neither a name nor arithmetic")


def _number(value: Any) -> int | float:
    if isinstance(value, (int, float)) and abs(value) < _LARGE:
        return value
    raise ValueError(f"{str(value)[:40]!r} is no number to compute with")
