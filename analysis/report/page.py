"""The page: a template, its style and its script, rendered into one self-contained file."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from analysis.metrics import number
from sweep.files import shipped_folder

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATE, STYLE, SCRIPT = "report.html.j2", "report.css.j2", "report.js.j2"


def render(content: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """The page. ``content``: template variables. ``data``: JSON values for the script.

    Every value is escaped by the template engine; the page's content security policy allows no script but the one
    here, load nothing, and send nothing.
    """
    from markupsafe import Markup

    templates = _environment()
    style = templates.get_template(STYLE).render(heat=content["heat"])
    script = templates.get_template(SCRIPT).render()
    policy = "; ".join(
        (
            "default-src 'none'",
            "img-src data:",
            f"style-src '{_hash(style)}'",
            f"script-src '{_hash(script)}'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    return templates.get_template(TEMPLATE).render(
        **content,
        policy=policy,
        style=Markup(style),  # noqa: S704 (our own template; its only values are colours that we computed)
        script=Markup(script),  # noqa: S704 (our own template, without values)
        data=Markup(json_for_html(data)),  # noqa: S704 (escaped by json_for_html)
    )


def json_for_html(data: Mapping[str, Any]) -> str:
    """JSON that cannot end the script element around it, nor open a comment there."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _hash(text: str) -> str:
    """The source expression by which a content security policy identifies an inline style or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@functools.cache
def _environment() -> Environment:
    """The templates of pages; what they are given is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    found = Environment(
        loader=FileSystemLoader(shipped_folder("templates")),
        undefined=StrictUndefined,
        autoescape=select_autoescape(enabled_extensions=("html.j2",), default=False),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["thousands"] = lambda count: f"{count:,}"
    found.filters["short"] = number
    return found
