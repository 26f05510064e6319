"""YAML as plain values, with the line of every key and item, so that a mistake can state its line.

Scalars follow YAML 1.2's core schema: only true and false are booleans, 010 is ten, 4:00:00 stays text, 1e6 a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from sweep.errors import Mistake, SweepError

Path = tuple[str | int, ...]

MAX_BYTES = 4_000_000
MAX_NODES = 200_000
"""values of one document once its aliases are followed: stops alias bombs"""
MAX_DEPTH = 40


@dataclass(frozen=True)
class Problem:
    """What is wrong at a path of a document. Checks return these; ``Document.located`` adds file and line."""

    path: Path
    fact: str
    remedy: str | None = None


@dataclass
class Document:
    """One YAML document. Everything of it came from one file (or option)."""

    value: Any
    file: str
    text: str = ""
    lines: dict[Path, int] = field(default_factory=dict)
    """path -> line, from 1; an override has line 0, which means none"""
    mistakes: list[Mistake] = field(default_factory=list)
    """duplicate keys and similar mistakes that do not stop the reading"""

    def line(self, path: Path) -> int | None:
        """The line of the path, or of its nearest parent."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]] or None
        return None

    def mistake(self, fact: str, path: Path = (), remedy: str | None = None) -> Mistake:
        """A mistake at the path."""
        return Mistake(fact, self.file, self.line(path), path_text(path) or None, remedy)

    def located(self, problems: Iterable[Problem]) -> list[Mistake]:
        """What was noted as it was read, and the problems as its mistakes, in the order of its lines."""
        mistakes = [self.mistake(problem.fact, problem.path, problem.remedy) for problem in problems]
        return sorted([*self.mistakes, *mistakes], key=lambda mistake: mistake.line or 0)


def path_text(path: Path) -> str:
    """The path as a user writes it: models.mine.hidden_size, constraints[2]."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def load(text: str, file: str) -> Document:
    """Read one YAML document. Raises SweepError if it is not YAML, or not safe to read."""
    if len(text) > MAX_BYTES:
        raise SweepError(Mistake(f"the file has over {MAX_BYTES:,} characters", file))
    try:
        root = yaml.compose(text, Loader=_CoreLoader)
    except yaml.MarkedYAMLError as error:
        raise SweepError(_not_yaml(error, file)) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise SweepError(Mistake("not YAML: a character that text cannot hold", file, line)) from None
    document = Document(None, file, text)
    value = _Reader(document).read(root, (), 0) if root is not None else None
    document.value = None if value is _REFUSED else value
    return document


def _not_yaml(error: yaml.MarkedYAMLError, file: str) -> Mistake:
    """The mistake, at the line that opens the bracket or text that is not closed; nothing of the file is quoted."""
    problem, context = error.problem or "", error.context or ""
    opened = next((word for word in _OPENED if word in context), None)
    if opened is not None and error.context_mark is not None:
        end = f" before line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        remedy = f"what began here is not closed or not separated{end}"
        return Mistake(f"not YAML: {_OPENED[opened]}", file, error.context_mark.line + 1, remedy=remedy)
    mark = error.problem_mark or error.context_mark
    if problem.startswith("expected <block end>"):
        problem = "this line does not continue what is above it: look at its indentation and quotes"
    fact = f"{context}, {problem}" if problem.startswith("but ") else problem or context
    fact = re.sub(r"(['\"]).{3,}\1", "…", fact.replace(r"character '\t'", "a tab")).removesuffix(" …")
    return Mistake(f"not YAML: {fact}", file, mark.line + 1 if mark else None)


_OPENED = {
    "flow sequence": "a list [",
    "flow mapping": "a mapping {",
    "quoted scalar": "a text in quotes",
    "simple key": "a key without `: `",
}
"""what PyYAML was parsing -> how it began"""


def dump(value: Any) -> str:
    """Plain values (mappings, lists, tuples, scalars) as YAML that ``load`` reads back to the same."""
    return yaml.dump(_plain(value), Dumper=_CoreDumper, sort_keys=False, width=110)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


class _CoreDumper(yaml.SafeDumper):
    """Quotes exactly what the core schema would read as something other than text."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


class _CoreLoader(yaml.SafeLoader):
    """YAML 1.2's core schema instead of 1.1's surprises (on, off, 1:30, 010, dates)."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """As PyYAML's, which takes quadratic time in the depth, and then overflows the stack."""
        if self.depth > MAX_DEPTH:
            fact = f"values are nested more than {MAX_DEPTH} deep"
            raise yaml.MarkedYAMLError(problem=fact, problem_mark=self.get_mark())
        self.depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node


_TAG = "tag:yaml.org,2002:"
for _name, _pattern, _first in (
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^[-+]?[0-9][0-9_]*$", list("-+0123456789")),
    ("float", r"^[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$", list("-+.0123456789")),
    ("merge", r"^<<$", ["<"]),
):
    for _user in (_CoreLoader, _CoreDumper):
        _user.add_implicit_resolver(_TAG + _name, re.compile(_pattern), _first)


_NOT_TEXT = re.compile(r"[\0\ud800-\udfff]")
_REFUSED = object()
"""a value reported in a mistake already: omitted, so that no further mistake is reported"""


class _Reader:
    """Nodes to plain values; notes lines and mistakes in the document."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.seen = 0

    def read(self, node: yaml.Node, path: Path, depth: int) -> Any:
        line = node.start_mark.line + 1
        self.document.lines.setdefault(path, line)
        self.seen += 1
        if self.seen > MAX_NODES or depth > MAX_DEPTH:
            raise SweepError(Mistake("too many or too deeply nested values (aliases?)", self.document.file, line))
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return {key: value for key, value in self._pairs(node, path, depth) if value is not _REFUSED}
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            items = [self.read(item, (*path, i), depth + 1) for i, item in enumerate(node.value)]
            return [item for item in items if item is not _REFUSED]
        if isinstance(node, yaml.ScalarNode) and node.tag in _SCALARS:
            return self._scalar(node, path)
        self.document.mistakes.append(self.document.mistake("a YAML tag is not allowed here", path))
        return _REFUSED

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        try:
            value = _SCALARS[node.tag](node.value)
        except (ValueError, KeyError):
            fact = f"expected {_WORDS.get(node.tag, 'another value')}, found a number that is too long"
            self.document.mistakes.append(self.document.mistake(fact, path))
            return _REFUSED
        if isinstance(value, str) and _NOT_TEXT.search(value):
            fact = "text with a NUL character, or half of a surrogate pair"
            self.document.mistakes.append(self.document.mistake(fact, path))
            return _NOT_TEXT.sub("", value)
        return value

    def _pairs(self, node: yaml.MappingNode, path: Path, depth: int) -> Iterator[tuple[str, Any]]:
        first: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == f"{_TAG}merge":
                text = "<<" if isinstance(key_node, yaml.ScalarNode) else "a list or mapping"
                fact = f"{text} cannot be a key here"
            elif (key := str(key_node.value)) in first:
                fact = f"the key {key!r} is given twice, first in line {first[key]}"
            else:
                below: Path = (*path, key)
                first[key] = self.document.lines[below] = line
                yield key, self.read(value_node, below, depth + 1)
                continue
            self.document.mistakes.append(Mistake(fact, self.document.file, line, path_text(path) or None))


def _integer(text: str) -> int:
    if len(text) > 30:
        raise ValueError(text)
    return int(text.replace("_", ""))


_WORDS = {f"{_TAG}int": "a whole number", f"{_TAG}float": "a number"}
_SCALARS: dict[str, Any] = {
    f"{_TAG}null": lambda _: None,
    f"{_TAG}bool": lambda text: {"true": True, "false": False}[text.lower()],
    f"{_TAG}int": _integer,
    f"{_TAG}float": lambda text: float(text.replace("_", "")),
    f"{_TAG}str": str,
}
