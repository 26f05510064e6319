"""Tables of the documentation that are made from the code: `python -m docs.generated` writes them into the pages.

A page holds each between `<!-- generated: NAME -->` and `<!-- end -->`; a test compares them with the code.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import re
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from bench_workloads import WORKLOADS
from bench_workloads.parameters import Parameters
from bench_workloads.trainers.adapter import TrainerParameters
from docs.summaries import SUMMARIES, table
from sweep.inputs.grid import BudgetLimits, Grid, Timeouts
from sweep.inputs.site import Site
from sweep.inputs.starter_files import SITE_TEMPLATES
from sweep.inputs.validation import meanings
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.physics.shapes import ModelShape, total_parameters
from sweep.plugins import WORKLOAD
from sweep.records.schema import COLLECTED, COLUMNS

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

DOCS = Path(__file__).parent
PLACE = re.compile(r"<!-- generated: (?P<name>[\w-]+) -->\n.*?<!-- end -->", re.DOTALL)
SEE = {
    "workload": "reference/grid.md#workloads",
    "models": "reference/grid.md#models",
    "params": "reference/workloads.md",
    "strategy": "search.md",
    "budget": "reference/grid.md#budget",
    "preflight": "doctor.md#before-a-pilots-first-run",
    "timeouts": "reference/grid.md#timeouts",
    "container_prefix": "containers.md",
    "srun": "containers.md",
    "node_groups": "reference/grid.md#several-kinds-of-nodes",
    "measured": "prediction.md#measured-rates-of-a-cluster",
}
"""key -> the page that explains it"""


def written(page: str, text: str) -> str:
    """The page's text with its tables as the code is now; ``page`` is its path in this folder."""

    def filled(found: re.Match[str]) -> str:
        made = re.sub(r"\]\(see:([^)]+)\)", lambda link: f"]({_relative(page, link[1])})", TABLES[found["name"]]())
        return f"<!-- generated: {found['name']} -->\n\n{made}\n\n<!-- end -->"

    return PLACE.sub(filled, text)


def _relative(page: str, target: str) -> str:
    file, _, anchor = target.partition("#")
    if file == page:
        return f"#{anchor}"
    return "../" * page.count("/") + target


def _keys(model: type[BaseModel]) -> str:
    """A row per key of a file: name, default, meaning."""
    texts = meanings(model)
    return table(
        ("key", "default", "meaning"),
        (
            (f"`{name}`", _default(field), _with_link(name, texts.get(name, "").replace("``", "`")))
            for name, field in model.model_fields.items()
        ),
    )


def _with_link(name: str, meaning: str) -> str:
    meaning = " ".join(meaning.split())
    return f"{meaning} ([more](see:{SEE[name]}))" if name in SEE else meaning


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = None if field.default is PydanticUndefined else field.default
    if isinstance(value, tuple) and len(value) == 1:
        (value,) = value
    if value is None or value == () or isinstance(value, BaseModel):
        return ""
    return _plain(value)


def _plain(value: object) -> str:
    """As YAML has it; whole minutes and hours of seconds as durations."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value >= 60 and value % 60 == 0:
        return f"{value / 3600:g}h" if value % 3600 == 0 else f"{value / 60:g}m"
    return str(value)


def _parameters(cls: type[Parameters], base: type[Parameters] = Parameters) -> str:
    """A row per parameter that the class adds to its base."""
    meanings = _docstrings(cls)
    return table(
        ("parameter", "default", "meaning"),
        (
            (f"`{name}`", _of_parameter(value), _with_link(name, meanings[name]))
            for name, value in cls.defaults().items()
            if name not in base.defaults()
        ),
    )


def _of_parameter(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _docstrings(cls: type) -> dict[str, str]:
    """Field -> the text under it in the source; empty where there is none."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    found = {
        base: text for parent in cls.__bases__ if parent is not object for base, text in _docstrings(parent).items()
    }
    for field, after in zip(body, [*body[1:], ast.Pass()], strict=True):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            text = ast.literal_eval(after.value) if isinstance(after, ast.Expr) else ""
            found[field.target.id] = " ".join(str(text).split())
    return found


def _settings(workload: str) -> type[Parameters]:
    """The class of a workload's parameters, next to its declaration or in a module ``settings``."""
    home = WORKLOADS[workload].partition(":")[0]
    module = importlib.import_module(home)
    if not hasattr(module, "Settings"):
        module = importlib.import_module(f"{home}.settings")
    settings: type[Parameters] = module.Settings
    if settings.defaults() != dict(WORKLOAD.find(workload).params):
        raise AssertionError(f"{workload}: its parameters are not those of {settings.__module__}")
    return settings


def _gpus() -> str:
    known = [gpu for gpu in GPUS.values() if gpu.memory_bytes]
    return ", ".join(f"`{gpu.name}` {gpu.memory_bytes / 1e9:g} GB" for gpu in known) + "."


def _models() -> str:
    heads = ("model", "parameters", "layers", "hidden size", "heads, kv heads", "")
    return table(heads, (_model(name, shape) for name, shape in MODELS.items()))


def _model(name: str, shape: ModelShape) -> tuple[str, ...]:
    total = total_parameters(shape)
    size = f"{total / 1e9:.2f} B" if total >= 1e8 else f"{total / 1e6:.1f} M"
    shared = f", {shape.shared_experts} shared" if shape.shared_experts else ""
    experts = f"{shape.num_experts} experts, {shape.experts_per_token} per token{shared}" if shape.num_experts else ""
    return (
        f"`{name}`",
        size,
        str(shape.num_layers),
        str(shape.hidden_size),
        f"{shape.num_heads}, {shape.num_kv_heads}",
        "; ".join(filter(None, ("tied embeddings" if shape.tied_embeddings else "", experts))),
    )


def _sites() -> str:
    """Each template of a site by its opening comment."""
    rows = []
    for name, path in SITE_TEMPLATES.items():
        lines = itertools.takewhile(lambda line: line.startswith("# "), path.read_text().splitlines())
        rows.append((f"`{name}`", " ".join(line.removeprefix("# ") for line in lines)))
    return table(("template", "cluster"), rows)


def _of_workload(name: str) -> Callable[[], str]:
    def made() -> str:
        settings = _settings(name)
        return _parameters(settings, TrainerParameters if issubclass(settings, TrainerParameters) else Parameters)

    return made


def _records() -> str:
    """A row per column of a results table."""
    return table(("column", "unit", "meaning"), ((f"`{c.name}`", c.unit, c.meaning) for c in COLUMNS + COLLECTED))


TABLES: Mapping[str, Callable[[], str]] = {
    "grid": lambda: _keys(Grid),
    "timeouts": lambda: _keys(Timeouts),
    "budget": lambda: _keys(BudgetLimits),
    "site": lambda: _keys(Site),
    "gpus": _gpus,
    "models": _models,
    "sites": _sites,
    **SUMMARIES,
    "records": _records,
    "trainers": lambda: _parameters(TrainerParameters),
    **{name: _of_workload(name) for name in WORKLOADS},
}
"""name of a place in a page -> its table"""


def main() -> None:
    """Write the tables into all pages."""
    for page in sorted(DOCS.rglob("*.md")):
        page.write_text(written(page.relative_to(DOCS).as_posix(), page.read_text()))


if __name__ == "__main__":
    main()
