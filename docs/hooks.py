"""Hooks of the documentation site: pages made of files outside this folder, links between all of them, llms.txt."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from mkdocs.structure.files import File

from sweep.cli.main import cli
from sweep.inputs.starter_files import SITE_TEMPLATES

ROOT = Path(__file__).parents[1]
ELSEWHERE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md"}
"""a file of the repository -> its page"""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s:#]+)(#[^()\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are files of the repository's root."""
    for name, page in ELSEWHERE.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as the repository has them become links between pages; to a file that is no page, its name is left."""
    source = page.file.src_uri
    place = next((name for name, made in ELSEWHERE.items() if made == source), f"docs/{source}")

    def link(found: re.Match[str]) -> str:
        picture, text, target, anchor = found.groups()
        file = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
        if not (ROOT / file).exists():
            return found[0]  # for the strict build to complain about
        if file not in ELSEWHERE and not file.startswith("docs/"):
            return text
        to = posixpath.relpath(ELSEWHERE.get(file, file.removeprefix("docs/")), posixpath.dirname(source) or ".")
        return f"{picture}[{text}]({to}{anchor or ''})"

    if place == "README.md":  # a picture with a width
        markdown = markdown.replace('src="docs/', 'src="')
    markdown = markdown.replace("<!-- commands -->", _commands()).replace("<!-- sites -->", _sites())
    return LINK.sub(link, markdown)


def _sites() -> str:
    """Each template of a site, to be copied."""
    return "\n\n".join(f"## {name}\n\n```yaml\n{path.read_text()}```" for name, path in SITE_TEMPLATES.items())


def _commands() -> str:
    """Each command's help, as the terminal shows it."""
    # Of a terminal's 80 columns click leaves two empty
    main = click.Context(cli, info_name="sweep", terminal_width=78, **cli.context_settings)
    sections = []
    for name, command in _with_subcommands(main):
        context = click.Context(command, info_name=name.removeprefix("sweep "), parent=main)
        sections.append(f"## {name}\n\n```text\n{command.get_help(context)}\n```")
    return "\n\n".join(sections)


def _with_subcommands(main: click.Context) -> Iterator[tuple[str, click.Command]]:
    for name in cli.list_commands(main):
        command = cli.get_command(main, name)
        yield f"sweep {name}", command
        if isinstance(command, click.Group):
            yield from ((f"sweep {name} {sub}", command.commands[sub]) for sub in sorted(command.commands))


def on_nav(nav: Any, **_: Any) -> Any:
    """Remember the pages in the order of the navigation."""
    _PAGES[:] = nav.pages
    return nav


def on_post_build(config: Any) -> None:
    """llms.txt: the pages with their first sentences, as llmstxt.org describes."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", "", "## Pages", ""]
    lines += [f"- [{page.title}]({page.url or 'index.html'}): {_summary(page.markdown or '')}" for page in _PAGES]
    (Path(config.site_dir) / "llms.txt").write_text("\n".join(lines) + "\n")


def _summary(markdown: str) -> str:
    """The first sentence of the first paragraph."""
    blocks = (block.strip() for block in markdown.split("\n\n"))
    text = next((block for block in blocks if block[:1].isalnum() or re.match(r"`[^`]", block)), "")
    return re.split(r"(?<=[.:])\s", re.sub(r"\s+", " ", text))[0].rstrip(":")


_PAGES: list[Any] = []
