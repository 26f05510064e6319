"""Words that only this project used, each with the standard term that replaced it: no file has the former."""

import re

from tests.support.paths import REPOSITORY

WORDS = {
    r"anew": "again, from scratch",
    r"alike|likes": "similar, equal",
    r"barren": "unproductive",
    r"deaf|hears?|heard": "unresponsive; last heartbeat",
    r"doubts?": "probability, uncertainty",
    r"for ever": "indefinitely",
    r"hindrances?|own fault": "blocked; config fault",
    r"leftovers?|strays?": "remaining, stale processes",
    r"lent|lends?|borrowed limits?": "provided; observed start limits",
    r"stands(?! (?:for|out)\b)|stood": "is, exists",
    r"told|tells?": "reports",
    r"twins?": "duplicates",
    r"whoever|anybody|nobody": "the caller; no process",
    r"(?:nodes?|ranks?|runs?|pilots?) at work": "running",
    r"in (?:its|their|his|other) (?:own )?words?": "as text",
    r"folds? (?:over|again)|the fold": "the state built from the events",
    r"fell silent|falls? silent|is silent": "timed out, unresponsive",
    r"zygotes?": "fork server",
    r"crowded": "oversubscribed host",
    r"pardon(?:s|ed)?": "release (of an excluded node)",
    r"left out by the budget|tier whole": "skipped (budget); all-nodes",
    r"bad_nodes|quarantined?": "excluded nodes",
    r"sweep (?:predict|extend|schema|figures)|export best": "the commands of README, Use",
    r"gives? back|none but|to be had|makes? it known": "returns; only; available; reports",
}
"""regular expression over whole words -> standard terms"""
PLACES = ("sweep", "analysis", "bench_workloads", "benchmarks", "templates", "docs", "examples", "tests")
SUFFIXES = {".py", ".md", ".j2", ".yaml", ".toml", ""}


def test_a_word_of_this_project_alone_is_nowhere():
    files = [path for place in PLACES for path in (REPOSITORY / place).rglob("*") if path.suffix in SUFFIXES]
    pages = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("*.toml"), REPOSITORY / "Makefile"]
    any_word = re.compile(rf"\b(?:{'|'.join(WORDS)})(?!\w)")
    for path in (path for path in [*files, *pages] if path.is_file() and path.name != "test_words.py"):
        if "__pycache__" not in path.parts and "recorded" not in path.parts:
            at = any_word.search(path.read_text().lower())
            term = at and next(term for word, term in WORDS.items() if re.fullmatch(word, at[0]))
            assert at is None, f"{path}: {at[0]!r}; the term is {term}"
