"""Samples mutants of each pure package with seeds, runs the nearest tests on each, and prints a score per package.

    python -m tests.support.mutants --seed 1,2,3 --sample 30 [PACKAGE…]

The score is the share of mutants that a test notices, by failing or by not ending in time (counted apart), of those
that are not equivalent by `equivalents.yaml`.
Exit code 1 where a score is below the floor.
"""

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import yaml

from tests.support.mutants.changes import Change, changes
from tests.support.mutants.running import TestsOfLines, changed_file, copied, end_of_tests, preload, tests_of_lines
from tests.support.paths import REPOSITORY

COMPARE = ("compare", "compare_noise", "compare_baseline", "compare_history")
PACKAGES = {
    "inputs": ("sweep/inputs", ["tests/inputs"]),
    "planning": ("sweep/planning", ["tests/planning"]),
    "state": ("sweep/state", ["tests/state"]),
    "search": ("sweep/search", ["tests/search", "tests/planning/test_node_groups.py"]),
    "records": ("sweep/records", ["tests/records"]),
    "diagnose": ("sweep/diagnose", ["tests/diagnose"]),
    "physics": ("sweep/physics", ["tests/physics"]),
    "derive": ("analysis/derive", ["tests/analysis/derive", "tests/cli/test_job.py"]),
    "compare": ("analysis/compare", [f"tests/analysis/test_{name}.py" for name in COMPARE]),
    "slurm": ("sweep/executors/slurm_states.py", ["tests/executors/test_slurm_states.py"]),
}
"""name -> its code, and its tests"""
EQUIVALENTS = Path(__file__).with_name("equivalents.yaml")
FLOOR = 85.0
NOTICED = ("killed", "out of time")


class Equivalents:
    """Changes that no test can notice, and files that hold data: `equivalents.yaml` gives the reason of each."""

    def __init__(self, path: Path = EQUIVALENTS) -> None:
        document = yaml.safe_load(path.read_text())
        self.data_files: frozenset[str] = frozenset(document["data"])
        self.rows: list[dict[str, str]] = document["changes"]
        self._changes = {(row["file"], row["line"], row["becomes"]) for row in self.rows}

    def has(self, change: Change, source: str) -> bool:
        return (change.file, *change.lines(source)) in self._changes


def sampled(name: str, equivalents: Equivalents, seed: int, size: int, root: Path = REPOSITORY) -> list[Change]:
    """The package's sample, the same for a seed as long as the code is the same."""
    place = root / PACKAGES[name][0]
    paths = [place] if place.is_file() else sorted(place.rglob("*.py"))
    files = {str(path.relative_to(root)): path.read_text() for path in paths}
    found = [c for file, text in files.items() if file not in equivalents.data_files for c in changes(file, text)]
    return random.Random(f"{seed} {name}").sample(found, min(size, len(found)))


def scores_of(name: str, copy: Path, equivalents: Equivalents, seeds: Sequence[int], size: int) -> list[float]:
    """The package's score for each seed; which tests run which line is found out once for all of them."""
    samples = {seed: sampled(name, equivalents, seed, size, copy) for seed in seeds}
    preload(copy)
    sources = sorted({change.file for sample in samples.values() for change in sample})
    nearest = tests_of_lines(copy, sources, PACKAGES[name][1])
    return [_score(name, copy, equivalents, nearest, seed, sample) for seed, sample in samples.items()]


def _score(
    name: str, copy: Path, equivalents: Equivalents, nearest: TestsOfLines, seed: int, sample: Sequence[Change]
) -> float:
    """Run a sample; print each survivor and the score."""
    ends: Counter[str] = Counter()
    for change in sample:
        source = (copy / change.file).read_text()
        end = _end_of(change, source, copy, nearest, equivalents)
        ends[end] += 1
        if end not in NOTICED:
            line, becomes = change.lines(source)
            print(f"  {end}: {change.file}:{change.line}\n    - {line}\n    + {becomes}", flush=True)
    unequal = len(sample) - ends["equivalent"]
    score = 100.0 * sum(ends[end] for end in NOTICED) / unequal if unequal else 100.0
    counted = ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
    print(f"{name}: {score:.0f} % (seed {seed}, {len(sample)} mutants: {counted})", flush=True)
    return score


def _end_of(change: Change, source: str, copy: Path, nearest: TestsOfLines, equivalents: Equivalents) -> str:
    if equivalents.has(change, source):
        return "equivalent"
    tests = nearest.of(change.file, change.line, source)
    if not tests:
        return "not run by any test"
    with changed_file(copy / change.file, change.apply(source)):
        return end_of_tests(copy, tests, sum(nearest.seconds[test] for test in tests))


def _seeds(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help=", ".join(PACKAGES))
    parser.add_argument("--seed", type=_seeds, default=[1], metavar="S[,S…]", help="a sample for each; default 1")
    parser.add_argument("--sample", type=int, default=30, help="mutants per package")
    given = parser.parse_args(arguments)
    if unknown := set(given.packages) - set(PACKAGES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; the packages are {', '.join(PACKAGES)}")
    print(f"seed {', '.join(map(str, given.seed))}, sample {given.sample} per package", flush=True)
    equivalents = Equivalents()
    with tempfile.TemporaryDirectory(prefix="mutants.") as folder:
        copy = copied(Path(folder))
        names = given.packages or list(PACKAGES)
        scores = {name: scores_of(name, copy, equivalents, given.seed, given.sample) for name in names}
    low = [name for name, of_seeds in scores.items() if min(of_seeds) < FLOOR]
    print("\n" + "\n".join(f"{name:<10} {' '.join(f'{s:5.0f} %' for s in row)}" for name, row in scores.items()))
    if low:
        print(f"below {FLOOR:.0f} %: {', '.join(low)}")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
