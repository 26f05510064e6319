"""The configuration keys that trainers read, from their sources: importing them would need GPUs.

`python -m tests.support.trainers.schemas PICOTRON MEGATRON_BRIDGE MEGATRON_LM` rewrites the facts of `schemas.json`,
from checkouts; the commits that it names are to be set by hand.
"""

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

FACTS = Path(__file__).parent / "schemas.json"
NEMO = {
    "model": "GPTModelProvider",
    "tokenizer": "TokenizerConfig",
    "dataset": "GPTDatasetConfig",
    "train": "TrainingConfig",
    "validation": "ValidationConfig",
    "scheduler": "SchedulerConfig",
    "ddp": "DistributedDataParallelConfig",
    "optimizer": "OptimizerConfig",
    "logger": "LoggerConfig",
    "checkpoint": "CheckpointConfig",
    "rerun_state_machine": "RerunStateMachineConfig",
    "rng": "RNGConfig",
}
"""sections of Megatron-Bridge's `ConfigContainer` -> the class that it annotates them with"""
CONTAINER = "ConfigContainer"


def picotron(root: Path) -> dict[str, list[str]]:
    """Keys `section.name` that train.py requires (`required`), those that it reads with a default (`optional`), and
    those of its template that it never reads (`unread`)."""
    required, optional = set(), set()
    for node in ast.walk(ast.parse((root / "train.py").read_text())):
        match node:
            case ast.Subscript(
                value=ast.Subscript(value=ast.Name("config"), slice=ast.Constant(section)), slice=ast.Constant(name)
            ):
                required.add(f"{section}.{name}")
            case ast.Call(
                func=ast.Attribute(
                    value=ast.Subscript(value=ast.Name("config"), slice=ast.Constant(section)), attr="get"
                ),
                args=[ast.Constant(name), *_],
            ):
                optional.add(f"{section}.{name}")
    template = json.loads((root / "template/base_config.json").read_text())
    known = {f"{section}.{name}" for section, values in template.items() for name in values}
    unread = known - required - optional
    return {"required": sorted(required), "optional": sorted(optional - required), "unread": sorted(unread)}


def nemo(bridge: Path, megatron: Path) -> dict[str, list[str]]:
    """The fields of `ConfigContainer` and of each section of `NEMO`, those of Megatron-LM's classes below included."""
    config = ast.parse((bridge / "src/megatron/bridge/training/config.py").read_text())
    container = next(node for node in _classes(config) if node.name == CONTAINER)
    annotated = {name: ast.unparse(one) for name, one in _fields(container)}
    layers = [_tables(bridge / "src/megatron/bridge"), _tables(megatron / "megatron")]
    found = {CONTAINER: sorted(annotated)}
    for section, name in NEMO.items():
        assert name in annotated[section], f"{section} is {annotated[section]}"
        found[section] = sorted(_all_fields(name, layers))
    return found


def section_and_field(name: str) -> tuple[str, str]:
    """The section of an override's key; without one it is a field of the container."""
    section, _, field = name.rpartition(".")
    return section or CONTAINER, field


def nemo_options(bridge: Path) -> list[str]:
    """The options of run_recipe.py."""
    tree = ast.parse((bridge / "scripts/training/run_recipe.py").read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    added = [node for node in calls if isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"]
    words = [word.value for node in added for word in node.args if isinstance(word, ast.Constant)]
    return sorted(word for word in words if word.startswith("--"))


def _tables(root: Path) -> dict[str, list[tuple[ast.ClassDef, dict[str, str]]]]:
    """Class name -> its definitions, each with what its module calls other classes."""
    found: dict[str, list[tuple[ast.ClassDef, dict[str, str]]]] = {}
    for path in sorted(root.rglob("*.py")):
        if "onfig" in (text := path.read_text()):
            tree = ast.parse(text)
            imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
            renamed = {one.asname: one.name for node in imports for one in node.names if one.asname}
            for node in _classes(tree):
                found.setdefault(node.name, []).append((node, renamed))
    return found


def _all_fields(name: str, layers: list) -> set[str]:
    """The fields of a class and of what it is derived from; a renamed base is one of the layer below."""
    found: set[str] = set()
    for node, renamed in next((table[name] for table in layers if name in table), ()):
        found |= {field for field, _ in _fields(node)}
        for base in (base.id for base in node.bases if isinstance(base, ast.Name)):
            found |= _all_fields(renamed[base], layers[1:]) if base in renamed else _all_fields(base, layers)
    return found


def _classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    return (node for node in tree.body if isinstance(node, ast.ClassDef))


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            yield one.target.id, one.annotation


if __name__ == "__main__":
    roots = [Path(word) for word in sys.argv[1:]]
    facts = json.loads(FACTS.read_text())
    facts["picotron"] |= picotron(roots[0])
    facts["nemo"] |= {"options": nemo_options(roots[1]), "fields": nemo(roots[1], roots[2])}
    FACTS.write_text(json.dumps(facts, indent=1) + "\n")
