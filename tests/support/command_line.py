"""The command line, called in this process: a fixture of all tests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import click

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line: (exit code, stdout, stderr)."""
    from sweep.cli.main import main  # three seconds, which tests that call no command need not wait

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["sweep", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    return call


def commands() -> dict[str, click.Command]:
    """Every command, by its name."""
    import click

    from sweep.cli.main import cli

    context = click.Context(cli)
    return {name: command for name in cli.list_commands(context) if (command := cli.get_command(context, name))}


def long_name(option: click.Parameter) -> str:
    """The name by which messages call an option: its first long one."""
    return next((word for word in option.opts if word.startswith("--")), option.opts[0])
