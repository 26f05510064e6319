"""Pages of the documentation: their blocks, their commands, and what they say outside of blocks."""

import configparser
import re
from pathlib import Path

from tests.support.paths import REPOSITORY

DOCS = REPOSITORY / "docs"
PAGES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """The blocks of a language, in order."""
    return [text for kind, text in FENCE.findall(page.read_text()) if kind == language]


def commands(page: Path) -> list[str]:
    """The command lines of the terminal blocks; in those of `console` a prompt precedes each."""
    lines = [(kind, line) for kind, block in FENCE.findall(page.read_text()) if kind in ("console", "bash")
             for line in block.replace("\\\n", " ").splitlines() if line.strip()]  # fmt: skip
    assert [line for kind, line in lines if kind == "console" and not line.startswith("$ ")] == []
    return [line.removeprefix("$ ").strip() for _, line in lines]


def prose(page: Path) -> str:
    """Everything but the blocks."""
    return FENCE.sub("", page.read_text())


def install_plugin(page: Path, module: str, folder: Path) -> None:
    """The first Python block of a page as a module, its second, if any, as the module's test, and what pip would write
    of its entry points: the folder on PYTHONPATH has it installed."""
    code, *checks = blocks(page, "python")
    (folder / f"{module}.py").write_text(code)
    for check in checks:
        (folder / f"test_{module}.py").write_text(check)
    project = configparser.ConfigParser()
    project.read_string(*blocks(page, "toml"))
    (group,) = [name for name in project.sections() if "entry-points" in name]
    lines = "".join(f"{name} = {value.strip(chr(34))}\n" for name, value in project[group].items())
    info = folder / f"{module}-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(f"[{group.split(chr(34))[1]}]\n{lines}")
