"""`sweep compare` as a guard in CI."""

from __future__ import annotations

import json

import pytest

from sweep.outcomes import Outcome
from sweep.records.collect import write_results
from tests.support import driving
from tests.support.made_records import made_measurement, made_record, made_run


def results(path, factor):
    """Six runs of one cell on disk, slower by a factor."""
    rows = []
    for zero in (0, 1):
        for size in (1, 2, 4):
            run = made_run(zero=zero, micro_batch_size=size, iterations=5)
            times = [0.1 * size * factor * (1 + 0.002 * ((7 * k + size + zero) % 5)) for k in range(5)]
            given = [made_measurement(*times, peak_allocated_bytes=2**30) for _ in range(run.gpus)]
            rows.append(made_record(run, measurements=given))
    write_results(path, [*rows, made_record(made_run(zero=3), outcome=Outcome.HANG)])
    return path


def test_the_command_guards_a_performance(tmp_path):
    old, new = results(tmp_path / "old.parquet", 1.0), results(tmp_path / "new.parquet", 1.06)
    same = driving.run("compare", old, old, "--fail-if-slower", "3%")
    assert same.returncode == 0, same.stderr
    assert "0 changed" in same.stdout
    slower = driving.run("compare", old, new, "--fail-if-slower", "3%", "--json")
    assert slower.returncode == 1, slower.stderr
    document = json.loads(slower.stdout)
    assert (document["failed"], document["slower"]) == (True, [["1B", 1]])
    assert document["cells"][0]["typical"]["change"] == pytest.approx(1 / 1.06 - 1, abs=0.002)
    shown = driving.run("compare", old, new)
    assert shown.returncode == 0, "without the option a comparison is no failure"
    assert "1 worse" in shown.stdout
    assert driving.run("compare", old, new, "--fail-if-slower", "lots").returncode == 2
    assert driving.run("compare", old, tmp_path / "none").returncode == 2
