"""Constraints: small conditions such as ``tp * pp <= 16 or nodes > 4``, evaluated over whole columns at once.

Built on simpleeval, never ``eval``: no attributes, no subscripts, no calls but min, max and abs.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
import simpleeval

MAX_LENGTH = 1000
_LARGE = 2.0**62
_NODES = (
    *(ast.Expr, ast.Name, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.Constant),
    *(ast.List, ast.Tuple, ast.Load, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
)


def names_in(text: str) -> frozenset[str]:
    """The columns that the expression reads. Raises ValueError where it is no expression, or asks for too much."""
    tree = _parse(text)
    calls = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        _refuse(node)
    return frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and n not in calls)


def holds(text: str, columns: Mapping[str, Any]) -> Any:
    """Where the condition holds: a boolean or a boolean array. Raises ValueError where it is no condition."""
    try:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = _Evaluator(columns).eval(text, previously_parsed=_parse(text))
    except (simpleeval.InvalidExpression, TypeError, OverflowError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"{text!r} cannot be evaluated: {error}") from None
    if np.asarray(result).dtype != np.bool_:
        raise ValueError(f"{text!r} is no condition: write a comparison, such as tp <= 8")
    return result


def _parse(text: str) -> ast.Expr:
    if len(text) > MAX_LENGTH:
        raise ValueError(f"the expression has over {MAX_LENGTH} characters")
    try:
        body = ast.parse(text.strip(), mode="exec").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"{text[:80]!r} is no expression: {getattr(error, 'msg', error)}") from None
    if len(body) != 1 or not isinstance(body[0], ast.Expr):
        raise ValueError(f"{text[:80]!r} is no single condition")
    return body[0]


def _refuse(node: ast.AST) -> None:
    if isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS or node.keywords:
            raise ValueError(f"only the functions {', '.join(_FUNCTIONS)} may be called in a constraint")
    elif not isinstance(node, _NODES):
        raise ValueError(f"{type(node).__name__} is not allowed in a constraint: use comparisons, and, or, not, in")
    elif isinstance(node, ast.Constant) and not isinstance(node.value, int | float | str | None):
        raise ValueError(f"{node.value!r} is not allowed in a constraint")
    elif isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) > _LARGE:
        raise ValueError(f"{node.value} is too large")


class _Evaluator(simpleeval.SimpleEval):  # type: ignore[misc]
    """simpleeval with and, or, not, in, chained comparisons and if-else over arrays."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        super().__init__(operators=dict(_OPERATORS), functions=dict(_FUNCTIONS), names=columns)
        allowed: dict[type, Any] = {kind: self.nodes[kind] for kind in _EVALUATED}
        self.nodes: dict[type, Any] = allowed | {ast.List: self._list, ast.Tuple: self._list}

    def _list(self, node: Any) -> list[Any]:
        return [self._eval(item) for item in node.elts]

    def _eval_boolop(self, node: Any) -> Any:
        combine = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
        return reduce(combine, [self._eval(value) for value in node.values])

    def _eval_compare(self, node: Any) -> Any:
        sides = [self._eval(side) for side in (node.left, *node.comparators)]
        pairs = zip(node.ops, sides[:-1], sides[1:], strict=True)
        return reduce(np.logical_and, [self.operators[type(op)](left, right) for op, left, right in pairs])

    def _eval_ifexp(self, node: Any) -> Any:
        return np.where(self._eval(node.test), self._eval(node.body), self._eval(node.orelse))


def _among(left: Any, right: Any) -> Any:
    if not isinstance(right, list):
        raise TypeError("`in` needs a list, such as tp in [1, 2]")
    return reduce(np.logical_or, [np.equal(left, item) for item in right], np.zeros(np.shape(left), dtype=bool))


def _number(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Arithmetic on numbers only, so that no text or list can be multiplied to any length."""

    def apply(left: Any, right: Any) -> Any:
        for side in (left, right):
            if np.asarray(side).dtype.kind not in "biuf":
                raise TypeError("arithmetic needs numbers")
        return function(_as_number(left), _as_number(right))

    return apply


def _as_number(value: Any) -> Any:
    """Whole numbers as 64-bit ones, so that no Python integer can grow without bound."""
    array = np.asarray(value)
    return array.astype(np.int64) if array.dtype.kind in "biu" else array


def _power(left: Any, right: Any) -> Any:
    return np.power(np.asarray(left, dtype=np.float64), right)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": lambda *values: reduce(np.minimum, values),
    "max": lambda *values: reduce(np.maximum, values),
    "abs": np.abs,
}
_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: _number(operator.add),
    ast.Sub: _number(operator.sub),
    ast.Mult: _number(operator.mul),
    ast.Div: _number(np.true_divide),
    ast.FloorDiv: _number(np.floor_divide),
    ast.Mod: _number(np.remainder),
    ast.Pow: _number(_power),
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: np.logical_not,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Is: np.equal,
    ast.IsNot: np.not_equal,
    ast.In: _among,
    ast.NotIn: lambda left, right: np.logical_not(_among(left, right)),
}
_EVALUATED: tuple[type, ...] = (
    *(ast.Expr, ast.Name, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.Constant),
)
