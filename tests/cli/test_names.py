"""Values that are names: listed in help, completed by tab, checked with all other options. For every command."""

import re
from pathlib import Path

import click
import pytest

from sweep.cli.names import OneOf
from sweep.plugins import TRAINER
from tests.support import driving
from tests.support.command_line import Command, commands, long_name
from tests.support.made_sweeps import made

NAMES = {"--metric", "--format", "--gpu", "--trainer", "--to", "--outcome", "--executor"}
"""options whose values are names, in whichever command"""


OPTIONS = [
    (name, param) for name, found in commands().items() for param in found.params if isinstance(param, click.Option)
]
NAMED = [(name, option) for name, option in OPTIONS if isinstance(option.type, (OneOf, click.Choice))]


def test_every_option_of_these_knows_its_names() -> None:
    assert {long_name(option) for _, option in NAMED} >= NAMES
    assert [each for each in OPTIONS if NAMES & set(each[1].opts) and each not in NAMED] == []


def test_no_help_shows_what_only_the_program_means(command: Command) -> None:
    """An end of a range that is not stated, a default that is none, an object or a member of an enumeration."""
    objects = r"<(?:function|class|built-in|module) |\bobject at 0x|\b[A-Z][a-z]\w*\.[A-Z_]{2,}\b|\bSentinel|\bUNSET\b"
    internal = re.compile(rf"\bNone\b|\[default: ?[;\]]|{objects}")
    for name in commands():
        out = command.shown(name, "--help")
        assert internal.findall(out) == [], name
        assert f"sweep {name}" in out.replace("Usage: sweep", "", 1), "an example"


@pytest.mark.parametrize(("name", "option"), NAMED, ids=lambda each: str(each))
def test_help_lists_the_names_and_a_wrong_one_is_refused(command: Command, name: str, option: click.Option) -> None:
    names = option.type.names() if isinstance(option.type, OneOf) else option.type.choices  # type: ignore[attr-defined]
    code, out, _ = command(name, "--help")
    shown = "".join(out.split())
    assert code == 0
    assert [each for each in names if "".join(each.split()) not in shown] == []
    flag = long_name(option)
    err = command.refused(name, flag, "no-such-name")
    assert flag in err


def completed(here: Path, *words: str) -> list[str]:
    """What bash's completion offers for the last word."""
    asked = {"_SWEEP_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(("sweep", *words)), "COMP_CWORD": len(words)}
    done = driving.succeeds(env={name: str(value) for name, value in asked.items()}, cwd=here)
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line.startswith("plain,")]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("best", "--metric", "mf"), {"mfu"}),
        (("best", "--format", ""), {"table", "json", "csv", "markdown", "flags", *TRAINER.names()}),
        (("report", "--format", "s"), {"svg"}),
        (("size", "--gpu", "h100-"), {"h100-pcie", "h100-nvl"}),
        (("memory", "SmolLM"), {"SmolLM3-3B"}),
        (("plan", "grid.yaml", "-o", "micro"), {"micro_batch_size="}),
    ],
)
def test_names_are_completed(tmp_path: Path, words: tuple[str, ...], expected: set[str]) -> None:
    assert set(completed(tmp_path, *words)) == expected


def test_run_ids_are_completed(tmp_path: Path) -> None:
    run_ids = {run.run_id for run in made(tmp_path / "sweeps" / "s").runs}
    for name in ("explain", "logs", "rerun"):
        assert set(completed(tmp_path, name, "sweeps/s", "")) == run_ids
        assert set(completed(tmp_path, name, "tiny-1M-n2")) == {r for r in run_ids if r.startswith("tiny-1M-n2")}
    assert completed(tmp_path, "rerun", "sweeps/missing", "x") == []
