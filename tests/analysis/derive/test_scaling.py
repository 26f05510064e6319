"""Scaling: efficiency and Amdahl's law."""

import numpy as np
import pandas as pd
import pytest

from analysis.derive.best import best_per_cell
from analysis.derive.scaling import amdahl, scaling
from tests.support.made_records import made_grid


def test_efficiency_is_relative_to_the_fewest_nodes():
    table = scaling(made_grid(2, 4, failing=False))
    for _, rows in table.groupby("model"):
        assert rows["efficiency"].tolist() == pytest.approx([1 / (1 + 0.08 * n) for n in range(4)])
        assert rows["tokens_per_second"].tolist() == pytest.approx(
            (rows["tokens_per_second_per_gpu"] * 8 * rows["nodes"]).tolist()
        )


def test_the_table_has_the_columns_of_the_best_and_those_of_scaling_alone():
    made = made_grid(2, 4, failing=False)
    table = scaling(made)
    further = {"gpus", "tokens_per_second", "tokens_per_second_per_gpu", "efficiency"}
    assert set(table) == set(best_per_cell(made)) | further
    assert table.index.tolist() == list(range(8))


def test_amdahls_law_is_recovered_and_needs_three_points():
    gpus = np.array([8, 16, 32, 64])
    table = pd.DataFrame({"model": "m", "gpus": gpus, "tokens_per_second": 1 / (1e-6 + 1e-3 / gpus)})
    fit = amdahl(table)["m"]
    assert fit.serial_share == pytest.approx(1e-6 / (1e-6 + 1e-3))
    assert amdahl(table.head(3))["m"].serial_share == pytest.approx(fit.serial_share)
    assert amdahl(table.head(2)) == {}


def test_gpus_follow_from_nodes_where_no_record_states_them():
    made = made_grid(1, 3, failing=False)
    stated, derived = scaling(made), scaling(made.assign(gpus=None))
    assert derived["gpus"].tolist() == stated["gpus"].tolist() == [8, 16, 32]
    alone = scaling(made.assign(gpus=None, gpus_per_node=None))
    assert alone["gpus"].tolist() == [1, 2, 4]
    assert scaling(made.assign(outcome="hang")).empty
