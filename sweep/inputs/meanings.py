"""What the keys of a file mean: the strings below the attributes of its class.

They are read from the source by what shows them. pydantic's ``use_attribute_docstrings`` would read them at every
import: 70 ms for each command and pilot.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any


def meanings(model: type) -> dict[str, str]:
    """Attribute -> the string below it, in the class and those that it inherits from."""
    meaning_of: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if each.__module__.startswith("sweep."):
            meaning_of |= _of_source(inspect.getsource(each))
    return meaning_of


def _of_source(source: str) -> dict[str, str]:
    (definition,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(definition, ast.ClassDef)
    meaning_of = {}
    for attribute, below in itertools.pairwise(definition.body):
        if isinstance(attribute, ast.AnnAssign) and isinstance(attribute.target, ast.Name):
            match below:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    meaning_of[attribute.target.id] = inspect.cleandoc(text)
    return meaning_of


def describe(schema: dict[str, Any], root: type, classes: Iterable[type]) -> None:
    """Add the meanings to a JSON schema of ``root``, whose definitions are of ``classes``."""
    of_name: Mapping[str, type] = {each.__name__: each for each in classes}
    parts = [(schema, root), *((part, of_name[name]) for name, part in schema.get("$defs", {}).items())]
    for part, model in parts:
        for name, text in meanings(model).items():
            if name in part.get("properties", {}):
                part["properties"][name]["description"] = text
