"""`make lint` finds a private word wherever it is, and none in the project."""

import pytest

from tests.support import vocabulary
from tests.support.paths import REPOSITORY


def test_every_place_is_checked():
    checked = vocabulary.files(REPOSITORY)
    assert {path.relative_to(REPOSITORY).parts[0] for path in checked} >= {*vocabulary.PLACES, "README.md"}


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("page.md", "One.\nWhat it told, for ever.\n", [(2, "told"), (2, "for ever")]),
        ("page.md", "The key `beside` and `sweep nodes pardon`; told.\n", [(1, "told")]),
        ("page.html.j2", "<p>Nobody</p>", [(1, "Nobody")]),
        ("code.py", '"""One.\n\nThe rank is deaf.\n"""\n', [(3, "deaf")]),
        ("code.py", "x = 1  # anew\n", [(1, "anew")]),
        ("code.py", 'print(f"the leader fell silent: {1}")\n', [(1, "fell silent")]),
        ("code.py", "class World:\n    heard: float = 0\n", [(1, "World"), (2, "heard")]),
        ("code.py", "class SilentPilot: ...\ndef test_it_says_why(): ...\n", [(1, "Silent"), (2, "says")]),
        ("code.py", 'world_size = least_squares(warmup, document["beside"], row.heard_at)\n', [(1, "squares")]),
        ("code.py", 'message = "look at what the page says"\n', []),
    ],
)
def test_a_planted_word_is_found(name, text, words, tmp_path, capsys):
    path = tmp_path / name
    path.write_text(text)
    assert sorted((found.line, found.word) for found in vocabulary.in_file(path)) == sorted(words)
    assert vocabulary.main([str(path)]) == (1 if words else 0)
    printed = capsys.readouterr().out
    assert all(f"{path}:{line}: {word!r} is a private word; standard: " in printed for line, word in words)
