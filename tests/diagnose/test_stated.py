"""An error that a log states at its end is a failure of unknown cause, where no rule knows it."""

import pytest

from sweep.diagnose.diagnose import diagnose_text

STATED = [
    "fatal: cannot map the segment",
    "mytrainer: error: the moon is full",
    "[n1] [ERROR] the moon is full",
    "2026-01-01 10:00:00 n1 loader exited with status 3",
    "launcher error: the moon is full",
    "Status:   Failed",
]


@pytest.mark.parametrize("line", STATED)
def test_an_error_at_the_end_that_no_rule_knows_is_unknown(line: str) -> None:
    found = diagnose_text(f"starting\nstep 1 loss 3.0\n{line}\ncleaning up\n")
    assert str(found.outcome) == "unknown"
    assert found.evidence == line


@pytest.mark.parametrize(
    "line",
    [
        "error: 0.12",
        "val error: 0.12",
        "WARNING: loader: error: the moon is full",
        "wandb: ERROR the run was not uploaded",
        "exited with status 0",
        "errors: none",
        "status: ok",
    ],
)
def test_a_figure_a_warning_or_a_good_end_is_no_error(line: str) -> None:
    assert diagnose_text(f"starting\n{line}\n").outcome is None


@pytest.mark.parametrize("line", STATED)
def test_work_that_goes_on_after_the_error_or_was_done_shows_that_nothing_failed(line: str) -> None:
    assert diagnose_text(f"{line}\nstep 1 loss 3.0\n").outcome is None
    assert diagnose_text(f"Training completed\n{line}\n").outcome is None


def test_the_end_is_a_dozen_lines() -> None:
    line = "fatal: cannot map the segment\n"
    assert diagnose_text(line + "\nmore output" * 11).outcome is not None
    assert diagnose_text(line + "\nmore output" * 12).outcome is None


def test_the_first_error_of_the_end_is_its_evidence() -> None:
    found = diagnose_text("fatal: the first\nfatal: the second\n")
    assert found.evidence == "fatal: the first"
    assert "no known cause" in found.advice
