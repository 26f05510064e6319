"""Every regular expression of the product takes time in proportion to its input, whatever that is."""

import re

import pytest

from tests.support.every_pattern import Used, collected, unknown
from tests.support.hostile_texts import Hostile, cpu_s, grows_faster, hostile, text_of

MEGABYTE = 1_000_000
SIZES = (1000, 4000)
"""characters: a square shows at these, and each of the many texts is soon read"""
ELSEWHERE = {
    "sweep.diagnose.model: re.compile(self.expression, re.IGNORECASE)": "a rule's",
    "sweep.executors.slurm_states: re.match(pattern, plain)": "a meaning's",
    "sweep.executors.slurm_states: re.search(pattern, message, re.IGNORECASE)": "a meaning's",
    "sweep.redaction: re.compile(pattern, re.VERBOSE)": "of its table",
    "sweep.redaction: re.compile('|'.join(map(re.escape, longest_first)))": "known values as they are",
    "bench_workloads.trainers.driver.driver: re.search(hint.pattern, line)": "a hint's",
    "bench_workloads.trainers.driver.reading: re.compile(text)": "a reader's",
    "bench_workloads.trainers.driver.reading: re.compile(begun)": "a reader's",
    "sweep.diagnose.tracebacks: re.compile('^' + _CLOCK.join(map(re.escape, re.split(_CLOCK, prefix))))": "a prefix",
    "sweep.foreign.mapping: re.compile(text)": "only compiled",
    "sweep.foreign.suggest: re.compile(f'(?i)(?<![a-z]){name}[ =:_-]*(\\\\d+)')": "of its table",
    "sweep.foreign.convert: re.search(reading.match, text[:CELL_CHARACTERS])": "the user's own",
    "sweep.pilot.job: re.search(f'^{re.escape(job)} (\\\\S+) end$', shown, re.MULTILINE)": "a name, and a word",
    "sweep.pilot.job: re.search(f'^{re.escape(node)} (\\\\S+) end$', shown, re.MULTILINE)": "a name, and a word",
}
"""calls of ``re`` whose pattern is not in the source: whose it is. All but the user's own are collected"""


def test_every_pattern_of_the_source_is_known():
    assert unknown() == set(ELSEWHERE), "name whose it is; where it is in a table, collect it in every_pattern.py"
    origins = {used.where.split()[0] for used in collected()}
    assert origins >= {"rule", "reader", "hint", "meaning", "sweep.redaction._AFTER", "sweep.diagnose.scan._PROGRESS"}


def test_no_pattern_takes_the_square_of_its_input():
    """On texts that are made from the pattern."""
    slow = {}
    for used in collected():
        for one in hostile(used.pattern):
            if grows_faster(lambda size, used=used, one=one: used.run(text_of(one, size)), SIZES):
                slow.setdefault(used.where, one)
    assert slow == {}


def test_the_test_finds_what_is_slow():
    for pattern, use in ((r"\d+ ms", "search"), (r"a.*b", "search")):
        used = Used("here", re.compile(pattern), {use})
        assert any(
            grows_faster(lambda size, one=one: used.run(text_of(one, size)), SIZES)  # noqa: B023
            for one in hostile(used.pattern)
        ), pattern


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_no_pattern_takes_over_a_second_for_a_megabyte():
    """On a quiet machine, so twice that here; and whatever follows a repetition, none grows faster than its input."""
    slow = {}
    for used in collected():
        took = {one: _slowest(used, one) for one in hostile(used.pattern)}
        worst = max(took, key=lambda one: took[one])
        if cpu_s(lambda: used.run(text_of(worst, MEGABYTE)), 3) > 2.0:  # noqa: B023 (called at once)
            slow[used.where] = worst
    assert slow == {}


def _slowest(used: Used, one: Hostile) -> float:
    ends = ("", " ", "\n", "x", "\x01")
    for end in ends:
        size = [500, 2000, 8000, 32_000]
        assert not grows_faster(lambda size, end=end: used.run(text_of(one, size, end)), size), (used.where, one, end)
    return cpu_s(lambda: used.run(text_of(one, 32_000)))
