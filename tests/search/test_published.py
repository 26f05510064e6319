"""Strategies on the Ultra-Scale Playbook's published runs, each shown a result only once it asked for the run.

Reads the folder that SWEEP_REFERENCE_DATA names; skipped where it is unset.
"""

import numpy as np
import pytest

from benchmarks.forecast import forecast, selected
from benchmarks.replay import replay, report
from sweep.foreign.files import import_file, read_recorded
from sweep.search.budget import Budget
from sweep.search.strategies import strategy_named
from tests.support import published
from tests.support.paths import REPOSITORY

MAP = REPOSITORY / "examples" / "import" / "playbook.yaml"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    path = tmp_path_factory.mktemp("playbook") / "results.parquet"
    import_file(published.table("playbook_runs.csv"), MAP, path)
    return path


def overall(results, strategy, share, *models):
    recorded = read_recorded(results, models)
    runs = int(share * len(recorded.candidates))
    return report(replay(recorded, strategy_named(strategy), Budget(runs=runs)))["overall"]


def test_guided_at_six_percent_of_the_runs(results):
    """The best of the 64-node cells, where most runs are disturbed, too."""
    found = overall(results, "guided", 0.06)
    assert found["mean_regret"] <= 0.005
    assert found["worst_regret"] <= 0.04


def test_one_and_two_nodes_order_the_others(results):
    recorded = read_recorded(results)
    found = forecast(recorded, *(selected(recorded.candidates, text) for text in ("nodes <= 2", "nodes > 2")))
    assert found["overall"]["spearman"] > 0.85
    assert all(cell["top_3_regret"] < 0.15 for cell in found["cells"] if cell["nodes"] < 64)


@pytest.mark.parametrize("model", ["1B", "8B"])
def test_guided_without_the_other_model(results, model):
    found = overall(results, "guided", 0.1, model)
    assert found["mean_regret"] <= 0.01
    assert found["worst_regret"] <= 0.04


@pytest.mark.parametrize("name", ["prune", "exhaustive"])
def test_runs_that_cannot_fit_take_no_turn_of_their_cell(results, name):
    """A tenth of the runs finds every cell's best, but the lone one of 1B on 64 nodes: the 18th that is predicted."""
    recorded = read_recorded(results)
    spent = replay(recorded, strategy_named(name), Budget(runs=len(recorded.candidates) // 10))
    assert set(np.bincount(recorded.candidates.cells[spent.order]).tolist()) == {11, 12}
    done = report(spent)
    regrets = {(cell["model"], cell["nodes"]): cell["regret"] for cell in done["cells"]}
    assert regrets.pop(("1B", 64)) < 0.41
    assert np.mean(list(regrets.values())) <= 0.005


def test_prune_misses_no_success_and_avoids_most_failures_under_a_budget(results):
    whole = overall(results, "prune", 1.0)
    assert whole["successes_rejected"] == whole["cell_bests_rejected"] == 0
    assert whole["worst_regret"] == 0
    assert whole["failures_avoided_share"] >= 0.7
    assert overall(results, "prune", 0.3)["failures_avoided_share"] >= 0.85
