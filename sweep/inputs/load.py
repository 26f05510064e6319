"""Reads what the user names: the grid file and the files that it names, the site, and where to run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.contract import FILE
from sweep.errors import Mistake, SweepError, file_mistake, nearest
from sweep.files import json_of, read_text
from sweep.inputs.check import LONGEST_TEXT, problems_of_the_rest
from sweep.inputs.grid import Grid, read_grid
from sweep.inputs.models import read_models
from sweep.inputs.site import Site, parse_measured, parse_site
from sweep.inputs.validation import check_kind
from sweep.inputs.yaml_lines import Document, Problem, dump, load
from sweep.inputs.yaml_lines import Path as KeyPath
from sweep.plugins import WORKLOAD

if TYPE_CHECKING:
    from pydantic import BaseModel


def sites_directory() -> Path:
    """The directory of a user's named sites."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "sweep" / "sites"


def load_grid(path: Path | str, overrides: Sequence[str] = ()) -> Grid:
    """The grid in a file, with ``key=value`` overrides applied. Raises SweepError with every mistake."""
    return parse_grid(_read(Path(path), "grid"), str(path), overrides)


def parse_grid(text: str, file: str, overrides: Sequence[str] = (), *, opens: bool = True) -> Grid:
    """The grid that the text states, with ``key=value`` overrides applied. Raises SweepError with every mistake.

    ``opens``: it may name files, whose content is then part of it. A sweep's own grid has it already, and opens none.
    """
    document = load(text, file)
    check_kind(document, "grid", Grid.model_fields, ("models", "nodes", "sequence_length"))
    override(document, overrides, Grid)
    wrong = read_models(document, read_config if opens else lambda _path: None)
    wrong += read_texts(document) if opens else []
    grid, problems = read_grid(document)
    problems += wrong
    if grid is None or problems or document.mistakes:
        raise SweepError(document.located([*problems, *problems_of_the_rest(document.value)]))
    return grid


def read_config(path: str) -> Mapping[str, Any] | None:
    """The mapping that a config.json holds; None where it cannot be read."""
    try:
        config: Mapping[str, Any] = json_of(read_text(Path(path), "config.json"), path)
    except (OSError, SweepError):
        return None
    return config


def read_texts(document: Document) -> list[Problem]:
    """Replace each ``@FILE`` of the document's parameters by the file's text. Returns what is wrong with them."""
    try:
        names = WORKLOAD.find(document.value["workload"]).texts
    except (KeyError, TypeError, SweepError):  # reported with the rest of the grid
        return []
    problems: list[Problem] = []
    for path, values in _parameters(document.value):
        for name in sorted(names & values.keys()):
            given, many = values[name], isinstance(values[name], list)
            try:
                texts = [parameter_text(item) for item in (given if many else [given])]
                values[name] = texts if many else texts[0]
            except ValueError as error:
                problems.append(Problem((*path, name), str(error)))
    return problems


def _parameters(grid: Mapping[str, Any]) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    """Where a grid gives parameters, and what it gives there."""
    places: list[tuple[KeyPath, Any]] = [(("params",), grid.get("params"))]
    for key in ("include", "exclude"):
        points = grid.get(key)
        places += [((key, i), point) for i, point in enumerate(points if isinstance(points, list) else ())]
    yield from ((path, values) for path, values in places if isinstance(values, dict))


def parameter_text(given: Any) -> Any:
    """The value, or the text of the file that ``@FILE`` names. Raises ValueError where that is none."""
    if not isinstance(given, str) or not given.startswith(FILE):
        return given
    try:
        text = read_text(Path(given.removeprefix(FILE)), "parameter", LONGEST_TEXT)
    except (OSError, SweepError, ValueError):  # the last is of a path with a NUL
        text = FILE
    if text.startswith(FILE):
        kib = LONGEST_TEXT >> 10
        raise ValueError(f"{given[:200]} is no readable text file of at most {kib} KiB that does not begin with {FILE}")
    return text


def load_site(grid: Grid | None = None, given: str | None = None, executor: str | None = None) -> Site:
    """The site: the file or name given, with the rates of the file next to it (site.yaml and site.measured.yaml), else
    the grid's own, else what is detected on this machine or cluster.

    Raises SweepError with every mistake.
    """
    if given is not None:
        path = site_path(given)
        site = parse_site(_read(path, "site"), str(path))
        neighbour = path.with_suffix(f".measured{path.suffix}")
        if not neighbour.is_file():
            return site
        if site.measured is not None:
            fact = f"measured rates are given twice: here, and in {neighbour.name}"
            raise SweepError(Mistake(fact, file=str(path), path="measured", remedy="remove one of them"))
        rates = parse_measured(_read(neighbour, "file of measured rates"), str(neighbour))
        return site.model_copy(update={"measured": rates})
    if grid is not None and grid.site is not None:
        return grid.site
    from sweep.inputs.detect import detect_site

    return parse_site(dump(dict(detect_site(executor or choose_executor(None)))), "the detected site")


def load_inputs(path: Path, overrides: Sequence[str], site: str | None) -> tuple[Grid, Site | None]:
    """Grid and site; None where the user states no site. Raises SweepError with every mistake of both."""
    mistakes: list[Mistake] = []
    grid = stated = None
    try:
        grid = load_grid(path, overrides)
    except SweepError as error:
        mistakes += error.mistakes
    try:
        stated = load_site(grid, site) if site is not None or (grid is not None and grid.site is not None) else None
    except SweepError as error:
        mistakes += error.mistakes
    if grid is None or mistakes:
        raise SweepError(mistakes)
    return grid, stated


def choose_executor(asked: str | None) -> str:
    """The requested executor, else slurm if its controller answers, else local."""
    if asked is not None:
        return asked
    from sweep.inputs.detect import slurm_answers

    return "slurm" if slurm_answers() else "local"


def max_local_ranks(site: Site) -> int:
    """Most ranks at once on this machine: as the site states, else two per core and at least eight."""
    return site.max_local_ranks or max(8, 2 * (os.cpu_count() or 1))


def site_path(given: str) -> Path:
    """The file of a site: a name without a slash or suffix is that of one in the user's sites directory."""
    path = Path(given)
    if path.exists() or "/" in given or path.suffix in (".yaml", ".yml"):
        return path
    named = sites_directory() / f"{given}.yaml"
    if named.is_file():
        return named
    known = sorted(p.stem for p in sites_directory().glob("*.yaml"))
    remedy = f"known names: {', '.join(known)}" if known else f"name a file; {sites_directory()} holds no site"
    raise SweepError(Mistake(f"no site named {given[:60]!r}", path="--site", remedy=remedy))


def _read(path: Path, what: str) -> str:
    """The text of an input file. Raises SweepError if it cannot be one."""
    try:
        return read_text(path, what)
    except FileNotFoundError:
        raise SweepError(Mistake(f"no such {what} file", file=str(path), remedy="check the path")) from None
    except OSError as error:
        raise SweepError(file_mistake(error) or str(error)) from None


def override(document: Document, options: Sequence[str], model: type[BaseModel]) -> None:
    """Put each ``dotted.key=YAML`` into the document, in order; what is wrong with an option is its mistake, too."""
    if isinstance(document.value, dict):
        for option in options:
            document.mistakes += _one(document, option, model)


def _one(document: Document, option: str, model: type[BaseModel]) -> list[Mistake]:
    where = f"-o {option[:100]}{'…' * (len(option) > 100)}"
    key, equals, text = option.partition("=")
    path = tuple(part.strip() for part in key.split("."))
    if not equals or not all(path):
        return [Mistake("an override is key=value", where, remedy="such as -o nodes=[1,2] or -o timeouts.start=60")]
    if path[0] not in model.model_fields:
        return [Mistake(f"unknown key {path[0]!r}", where, remedy=nearest(str(path[0]), model.model_fields))]
    try:
        given = load(text, where)
    except SweepError as error:
        return [replace(mistake, line=None) for mistake in error.mistakes]
    if given.mistakes:
        return [replace(mistake, line=None) for mistake in given.mistakes]
    target = document.value
    for part in path[:-1]:
        if target.get(part) is None:
            target[part] = {}
        target = target[part]
        if not isinstance(target, dict):
            return [Mistake(f"{part} is not a mapping, so nothing can be set below it", where)]
    target[path[-1]] = given.value
    document.lines = {p: n for p, n in document.lines.items() if p[: len(path)] != path}
    document.lines[path] = 0
    return []
