"""The mutants of a file, by cosmic-ray's operators."""

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass

import cosmic_ray.plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from parso.python.tree import Number, Operator

OPERATORS = tuple(
    f"core/{name}"
    for name in (
        *(f"ReplaceBinaryOperator_{pair}" for pair in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul")),
        *(f"ReplaceBinaryOperator_{pair}" for pair in ("Mod_Mul", "Pow_Mul", "BitAnd_BitOr", "BitOr_BitAnd")),
        *(f"ReplaceComparisonOperator_{pair}" for pair in ("Eq_NotEq", "NotEq_Eq", "Lt_LtE", "LtE_Lt", "Gt_GtE")),
        *(f"ReplaceComparisonOperator_{pair}" for pair in ("GtE_Gt", "Lt_GtE", "Gt_LtE", "Is_IsNot", "IsNot_Is")),
        *("ReplaceUnaryOperator_Delete_USub", "ReplaceUnaryOperator_Delete_Not", "AddNot", "NumberReplacer"),
        *("ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd"),
        *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ExceptionReplacer", "ZeroIterationForLoop"),
    )
)
"""one or two replacements of each token: a test that notices ``-`` in place of ``+`` notices ``<<`` too"""
GUARDS = {"strict", "frozen", "kw_only", "slots", "maxsize", "ascii", "ensure_ascii"}
"""keywords that state our own invariants (zip's strict), what mypy checks (frozen), or caches and encodings"""
LARGE = 100
"""one more or less is no change of rule to a larger number"""


@dataclass(frozen=True)
class Change:
    """One mutant: an occurrence of an operator in a file."""

    file: str
    line: int
    operator: str
    occurrence: int

    def apply(self, source: str) -> str:
        """The file's text with this change."""
        return str(mutate_code(source, cosmic_ray.plugins.get_operator(self.operator)(), self.occurrence))

    def lines(self, source: str) -> tuple[str, str]:
        """What the change takes out and what it puts in."""
        compared = difflib.ndiff(source.splitlines(), self.apply(source).splitlines())
        marked = [line for line in compared if line[:2] in ("- ", "+ ")]
        return tuple(" ".join(line[2:].strip() for line in marked if line[0] == sign) for sign in "-+")


def changes(file: str, source: str) -> Iterator[Change]:
    """All mutants of a file, except those that change nothing that runs."""
    nodes, out = list(ast_nodes(get_ast(source))), left_out(ast.parse(source))
    for name in OPERATORS:
        operator, occurrence = cosmic_ray.plugins.get_operator(name)(), 0
        for node in nodes:
            for (line, column), _ in operator.mutation_positions(node):
                left = any(start <= (line, column) < end for start, end in out)
                if not left and not any(is_none(node) for is_none in (_large, _quoted, _separates_parameters, _dotted)):
                    yield Change(file, line, name, occurrence)
                occurrence += 1


def left_out(tree: ast.Module) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """The places (from, to) that never run: annotations; and guards, in calls, decorators and class heads."""
    found: list[ast.AST | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign | ast.arg):
            found.append(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(node.returns)
        elif (
            (isinstance(node, ast.keyword) and node.arg in GUARDS)
            or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
            or isinstance(node, ast.Assert)
        ):
            found.append(node)
        elif isinstance(node, ast.Assign) and "TypeAlias" in ast.unparse(node):
            found.append(node.value)
    return [((n.lineno, n.col_offset), (n.end_lineno, n.end_col_offset)) for n in found if n is not None]  # type: ignore[attr-defined]


def _separates_parameters(node: object) -> bool:
    """The ``*`` of a signature, after which parameters are given by name: mypy checks the calls."""
    return isinstance(node, Operator) and node.parent is not None and node.parent.type in ("parameters", "param")


def _dotted(node: object) -> bool:
    """A clause with an exception of a module, such as ``except msgspec.DecodeError``: cosmic-ray cannot replace it."""
    return getattr(node, "type", None) == "except_clause" and "." in node.children[1].get_code()  # type: ignore[attr-defined]


def _quoted(node: object) -> bool:
    """How many characters of a value a message quotes, ``{value[:40]!r}``: one more or less is no change of rule."""
    if not isinstance(node, Number) or node.parent is None or node.parent.type != "subscript":
        return False
    return bool(node.search_ancestor("fstring_expr"))


def _large(node: object) -> bool:
    return isinstance(node, Number) and abs(ast.literal_eval(node.value)) > LARGE
