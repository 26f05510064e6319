"""A real headless browser for tests: Debian's chromium, driven by Playwright, started once per test file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


@dataclass
class PageEvents:
    """What a page did and must not do."""

    console: list[str] = field(default_factory=list)
    """errors and warnings, uncaught exceptions included"""
    requests: list[str] = field(default_factory=list)
    """all requests except for the page"""


@pytest.fixture(scope="module")  # while it runs, no other event loop can run in this thread
def browser() -> Iterator[Browser]:
    """Fail (SWEEP_REQUIRE_BROWSER=1) or skip where there is none."""
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    reason = _driver_fails() if program else f"no browser is installed (one of {', '.join(CHROMIUM)})"
    if reason and os.environ.get("SWEEP_REQUIRE_BROWSER") == "1":
        pytest.fail(f"SWEEP_REQUIRE_BROWSER=1, but {reason}", pytrace=False)
    if reason:
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # No sandbox: root (as in CI) may not have one, and the pages are our own.
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"], timeout=120_000)
        yield started
        started.close()


def _driver_fails() -> str | None:
    """Why Playwright's driver does not start here, if so: it needs libatomic, which a small Debian lacks."""
    done = subprocess.run(
        [sys.executable, "-m", "playwright", "--version"], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return None
    return (
        f"Playwright's driver of the browser does not start: {(done.stderr.strip() or 'no message').splitlines()[-1]}"
    )


@contextmanager
def opened(browser: Browser, file: Path, **context: Any) -> Iterator[tuple[Page, PageEvents]]:
    """The file in a new window, with its console and requests recorded from the start."""
    window = browser.new_context(**context)
    page, events = window.new_page(), PageEvents()
    url = file.resolve().as_uri()
    page.on("console", lambda m: events.console.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: events.console.append(str(error)))
    page.on("request", lambda r: events.requests.append(r.url) if r.url.partition("#")[0] != url else None)
    page.goto(url)
    try:
        yield page, events
    finally:
        window.close()
