"""Output in terminals whose encoding lacks some characters: a locale such as en_US (Latin-1), or plain ASCII."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.made_sweeps import made

RESULTS = Path(__file__).parents[2] / "docs" / "data" / "laptop.parquet"


def output_of(encoding: str, *words: str) -> str:
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [sys.executable, "-m", "sweep.cli.main", *words], env=environment, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode(encoding)


def test_characters_that_the_terminal_lacks_become_question_marks():
    """The table of results has a dash for what is unknown (the MFU of a CPU)."""
    words = ("best", str(RESULTS), "--model", "tiny-1M", "--nodes", "1")
    for encoding, shown in (("utf-8", "\u2013"), ("ascii", " ? |"), ("latin-1", " ? |")):
        assert shown in output_of(encoding, *words), encoding


def test_a_sweep_whose_path_the_terminal_cannot_show_has_its_status(tmp_path):
    assert "m?nchen" in output_of("ascii", "status", str(made(tmp_path / "m\u00fcnchen").directory.path))
