"""Output as lines, in any chunks: cut anywhere, coloured, prefixed, redrawn; and numbers in them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_workloads.trainers.driver.reading import PREFIX, Lines, number

OUTPUT = "step 1 loss 2.5\r\n\x1b[31mstep 2\x1b[0m ünïcode\r 10%|█ | 1/10\r 20%|██ | 2/10\nlast"


@given(st.lists(st.integers(1, 9), max_size=60))
def test_lines_are_the_same_however_they_are_cut(sizes):
    data, lines, found = OUTPUT.encode(), Lines(), []
    for size in sizes:
        found += lines.timed(data[:size], 0.0) if data else []
        data = data[size:]
    found += [*(lines.timed(data, 0.0) if data else []), *lines.timed(b"", 0.0)]
    assert [line for line, _ in found] == [
        "step 1 loss 2.5",
        "step 2 ünïcode",
        " 10%|█ | 1/10",
        " 20%|██ | 2/10",
        "last",
    ]


def test_a_line_of_a_progress_bar_is_as_old_as_its_text_not_as_the_next_one():
    lines, pieces = Lines(), [b"\r 1/8 [00:01", b"]", b"\r 2/8\r\n", b"loss 1\r", b"\r 3/8", b"", b" 4/8", b"!\r", b""]
    timed = [one for at_s, data in enumerate(pieces) for one in lines.timed(data, at_s)]
    assert timed == [(" 1/8 [00:01]", 1), (" 2/8", 2), ("loss 1", 3), (" 3/8", 4), (" 4/8!", 7)]


def test_an_endless_line_does_not_fill_the_memory():
    lines = Lines()
    held = [lines.timed(b"x" * 50_000, 0.0) for _ in range(100)]
    assert sum(len(line) for batch in held for line, _ in batch) >= 100 * 50_000 - 64_000


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        ("[rank3]: step 1", "step 1"),
        ("[default12]:step 1", "step 1"),
        (" 7: step 1", "step 1"),
        ("[2026-11-21 14:26:37] step 1", "[2026-11-21 14:26:37] step 1"),
        ("step 1", "step 1"),
    ],
)
def test_launchers_prefixes(line, rest):
    assert PREFIX.sub("", line) == rest


@pytest.mark.parametrize(
    ("text", "value"),
    [("3,400", 3400), ("1.5e-3", 0.0015), ("2.1K", 2100), ("1.02M", 1.02e6), ("inf", math.inf), ("nan", math.nan)],
)
def test_numbers(text, value):
    assert number(text) == pytest.approx(value, nan_ok=True)
    assert number("n/a") is None
