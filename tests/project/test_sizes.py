"""How large files, functions and classes may be, and where values without a type may pass."""

import ast
import re
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY

PRODUCT = ("sweep", "analysis", "bench_workloads")
TYPED = ("pilot", "state", "store", "records")
CLASS_LINES, FUNCTION_LINES, MOST_FUNCTIONS_LINES = 200, 60, 20
UNTYPED = ("dict[str, Any]", "Mapping[str, Any]", "object")
BORDER = {
    "sweep/pilot/leader/nodes.py": {"_on_loop_error"},  # asyncio's context
    "sweep/pilot/agent/evidence.py": {"as_text"},  # a dump of NCCL's flight recorder, a pickle of plain values
    "sweep/pilot/agent/progress.py": {"_measurement"},  # JSON that a rank wrote
    "sweep/store/create.py": {"_provenance"},  # JSON to be written
    "sweep/records/schema.py": {"numbers_of"},  # JSON of a column, of any form
}
"""file -> functions in which JSON, a pickle or Parquet becomes values or is made of them"""


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (REPOSITORY / folder).rglob("*.py"))


def found(kinds, *folders: str) -> list[tuple[int, str]]:
    """(lines, where) of each definition of these kinds."""
    return [
        (node.end_lineno - node.lineno + 1, f"{path.relative_to(REPOSITORY)}:{node.name}")
        for path in sources(*folders)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, kinds)
    ]


def test_no_class_is_longer_than_200_lines_and_no_function_than_60():
    classes = [where for lines, where in found(ast.ClassDef, *PRODUCT) if lines > CLASS_LINES]
    functions = [where for lines, where in found((ast.FunctionDef, ast.AsyncFunctionDef), *PRODUCT) if lines > 60]
    assert (classes, functions) == ([], [])


@pytest.mark.parametrize("package", TYPED)
def test_nine_functions_of_ten_have_at_most_20_lines(package):
    lines = sorted(lines for lines, _ in found((ast.FunctionDef, ast.AsyncFunctionDef), f"sweep/{package}"))
    assert lines[int(0.9 * len(lines))] <= MOST_FUNCTIONS_LINES


def test_files_are_small_and_the_top_level_is_a_handful():
    lengths = {str(path): len(path.read_text().splitlines()) for path in sources(*PRODUCT)}
    assert not {name: length for name, length in lengths.items() if length > 400}
    assert len(list((REPOSITORY / "sweep").glob("*.py"))) <= 10


def untyped(tree: ast.Module) -> set[str]:
    """The functions and classes with an annotation of a value without a type."""
    places = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            notes = [node.returns, *(argument.annotation for argument in arguments)]
            body = [each.annotation for each in ast.walk(node) if isinstance(each, ast.AnnAssign)]
        elif isinstance(node, ast.ClassDef):
            notes, body = [], [each.annotation for each in node.body if isinstance(each, ast.AnnAssign)]
        else:
            continue
        texts = [re.sub(r"'[^']*'", "", ast.unparse(note)) for note in [*notes, *body] if note is not None]
        if any(kind in text for text in texts for kind in UNTYPED):
            places.add(node.name)
    return places


@pytest.mark.parametrize("package", TYPED)
def test_values_without_a_type_pass_at_the_json_and_parquet_border_only(package):
    seen = {
        str(path.relative_to(REPOSITORY)): places
        for path in sources(f"sweep/{package}")
        if (places := untyped(ast.parse(path.read_text())))
    }
    assert seen == {file: places for file, places in BORDER.items() if file.startswith(f"sweep/{package}/")}
