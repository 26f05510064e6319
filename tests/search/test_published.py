"""Strategies on the Ultra-Scale Playbook's published runs, each shown a result only once it asked for the run.

Reads the folder that SWEEP_REFERENCE_DATA names; skipped where it is unset.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from sweep.foreign.files import import_file, read_recorded
from sweep.search.budget import Budget
from sweep.search.replay import replay, report
from sweep.search.strategies import strategy_named
from tests.support.paths import REPOSITORY

REFERENCE = os.environ.get("SWEEP_REFERENCE_DATA")
pytestmark = pytest.mark.skipif(not REFERENCE, reason="SWEEP_REFERENCE_DATA is not set")
MAP = REPOSITORY / "examples" / "import" / "playbook.yaml"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    path = tmp_path_factory.mktemp("playbook") / "results.parquet"
    import_file(Path(REFERENCE) / "playbook_runs.csv", MAP, path)
    return path


def overall(results, strategy, share, *models):
    recorded = read_recorded(results, models)
    runs = int(share * len(recorded.candidates))
    return report(replay(recorded, strategy_named(strategy), Budget(runs=runs)))["overall"]


def test_guided_at_a_tenth_of_the_runs(results):
    found = overall(results, "guided", 0.1)
    assert found["mean_regret"] <= 0.01
    assert found["worst_regret"] <= 0.03
    assert found["runs_to_within_2pct_share"] <= 0.085
    assert found["successes_rejected"] == found["cell_bests_rejected"] == 0


@pytest.mark.parametrize("model", ["1B", "8B"])
def test_guided_without_the_other_model(results, model):
    found = overall(results, "guided", 0.1, model)
    assert found["mean_regret"] <= 0.01
    assert found["worst_regret"] <= 0.03


def test_prune_misses_no_success_and_avoids_most_failures_under_a_budget(results):
    whole = overall(results, "prune", 1.0)
    assert whole["successes_rejected"] == whole["cell_bests_rejected"] == 0
    assert whole["worst_regret"] == 0
    assert whole["failures_avoided_share"] >= 0.7
    assert overall(results, "prune", 0.3)["failures_avoided_share"] >= 0.85


def test_the_failures_that_are_left_are_not_of_memory(results):
    """Why no rule of memory could avoid 85 %: too many of the failed need little of it."""
    recorded = read_recorded(results, ())
    c, ok = recorded.candidates, recorded.worked
    failed = ~ok & ~np.isin(c.duplicates, c.duplicates[ok])
    assert (failed & (c.impossible | (c.memory_use > 0.6))).sum() / failed.sum() < 0.85
