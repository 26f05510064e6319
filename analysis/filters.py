"""`--filter "zero <= 1 and model == '8B'"`: a small, safe expression over columns. It is never run as code."""

from __future__ import annotations

import ast
import operator
from typing import TYPE_CHECKING, Any

from sweep.errors import Mistake, SweepError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import pandas as pd

_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda column, values: column.isin(values),
    ast.NotIn: lambda column, values: ~column.isin(values),
}
_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_GRAMMAR = "compare columns with < <= == != > >= in, join with and, or, not: zero <= 1 and model in ('1B', '8B')"


def keep(records: pd.DataFrame, expression: str) -> pd.DataFrame:
    """The rows for which the expression holds; a row whose columns are null does not.

    Raises SweepError where it is no expression, or names an unknown column.
    """
    import pandas as pd

    tree = _parsed(expression)
    _check_names(tree, records.columns)
    try:
        holds = _value(tree.body, records, expression)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise _mistake(expression, f"cannot be computed: {error}") from error
    if isinstance(holds, bool):
        holds = pd.Series(holds, index=records.index)
    if not isinstance(holds, pd.Series) or not pd.api.types.is_bool_dtype(holds):
        raise _mistake(expression, "is no condition")
    kept: pd.DataFrame = records[holds.fillna(False).astype(bool)]
    return kept


def names_in(expression: str) -> list[str]:
    """The columns that an expression names. Raises SweepError where it is none."""
    found = [node.id for node in ast.walk(_parsed(expression)) if isinstance(node, ast.Name)]
    return list(dict.fromkeys(found))


def _parsed(expression: str) -> ast.Expression:
    try:
        return ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _mistake(expression, "is no expression") from error


def _check_names(tree: ast.Expression, columns: Collection[str]) -> None:
    mistakes = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in columns:
            remedy = nearest(node.id, columns, otherwise="docs/records.md lists the columns")
            mistakes.append(Mistake(f"no column {node.id!r}", path="--filter", remedy=remedy))
    if mistakes:
        raise SweepError(mistakes)


def _value(node: ast.expr, records: pd.DataFrame, expression: str) -> Any:
    """The value of a part of the expression: a constant, or one value per row."""
    match node:
        case ast.Constant(value=bool() | int() | float() | str()):
            return node.value
        case ast.Name():
            return records[node.id]
        case ast.Tuple() | ast.List():
            return [_value(item, records, expression) for item in node.elts]
        case ast.UnaryOp(op=ast.Not()):
            return ~_value(node.operand, records, expression)
        case ast.UnaryOp(op=ast.USub()):
            return -_value(node.operand, records, expression)
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            left, right = (_value(side, records, expression) for side in (node.left, node.right))
            return _ARITHMETIC[type(node.op)](left, right)
        case ast.BoolOp():
            return _joined(node, records, expression)
        case ast.Compare() if all(type(op) in _COMPARE for op in node.ops):
            return _compared(node, records, expression)
    raise _mistake(expression, f"{ast.unparse(node)!r} is not allowed")


def _joined(node: ast.BoolOp, records: pd.DataFrame, expression: str) -> Any:
    join = operator.and_ if isinstance(node.op, ast.And) else operator.or_
    values = [_value(part, records, expression) for part in node.values]
    result = values[0]
    for value in values[1:]:
        result = join(result, value)
    return result


def _compared(node: ast.Compare, records: pd.DataFrame, expression: str) -> Any:
    """A chain such as 1 < tp <= 8 holds where each link does."""
    sides = [_value(side, records, expression) for side in (node.left, *node.comparators)]
    result: Any = None
    for op, left, right in zip(node.ops, sides, sides[1:], strict=False):
        link = _COMPARE[type(op)](left, right)
        result = link if result is None else result & link
    return result


def _mistake(expression: str, fact: str) -> SweepError:
    return SweepError(Mistake(f"{expression!r} {fact}", path="--filter", remedy=_GRAMMAR))
