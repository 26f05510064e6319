"""The command line, called in this process: a fixture of all tests."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.refusals import mistakes_of

if TYPE_CHECKING:
    from pathlib import Path

    import click


class Command:
    """Called with a command's words: (exit code, stdout, stderr)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *words: object) -> tuple[int, str, str]:
        from sweep.cli.main import main  # three seconds, which tests that call no command need not wait

        self._monkeypatch.setattr(sys, "argv", ["sweep", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = self._capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    def shown(self, *words: object) -> str:
        """What a command that succeeds prints."""
        code, out, err = self(*words)
        assert code == 0, err
        return out

    def json(self, *words: object) -> Any:
        """The document that a command that succeeds prints."""
        return json.loads(self.shown(*words, "--json"))

    def refused(self, *words: object, within: Path | None = None) -> str:
        """The message of a command that is refused: it prints nothing else, and changes nothing in this directory."""
        from tests.support.made_sweeps import tree

        before = within and tree(within)
        code, out, err = self(*words)
        assert (code, out, "Traceback" in err) == (2, "", False), err
        assert (within and tree(within)) == before
        return err


class Called:
    """One command by its "module:attribute", called in this process without the program around it."""

    def __init__(self, place: str) -> None:
        from sweep.plugins import load_object

        self._command = load_object(place)

    def shown(self, *words: object) -> str:
        """What it prints. Raises what it raises."""
        from click.testing import CliRunner

        how = {"catch_exceptions": False, "standalone_mode": False}
        return CliRunner().invoke(self._command, [*map(str, words)], **how).stdout

    def json(self, *words: object) -> Any:
        """The document that it prints."""
        return json.loads(self.shown(*words, "--json"))

    def mistakes(self, *words: object) -> list[str]:
        """All that it refuses."""
        return [*map(str, mistakes_of(self.shown, *words))]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line."""
    return Command(monkeypatch, capsys)


def commands() -> dict[str, click.Command]:
    """Every command, by its name."""
    import click

    from sweep.cli.main import cli

    context = click.Context(cli)
    return {name: command for name in cli.list_commands(context) if (command := cli.get_command(context, name))}


def long_name(option: click.Parameter) -> str:
    """The name by which messages call an option: its first long one."""
    return next((word for word in option.opts if word.startswith("--")), option.opts[0])
