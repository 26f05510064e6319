"""Columns of texts, and the share of layers that are recomputed."""

import numpy as np

from sweep.physics.columns import Numbers, equals, read, recomputed_share


def test_a_column_equals_a_text_where_it_holds_it():
    assert equals({"dtype": np.array(["bf16", "fp8", "fp32"])}, "dtype", "fp8", "fp32").tolist() == [False, True, True]
    assert [bool(equals({"dtype": text}, "dtype", "fp8")) for text in ("fp8", "bf16")] == [True, False]


def test_of_some_rows_an_array_has_its_values_there_and_a_scalar_its_own():
    some = Numbers({"tp": np.array([1, 2, 4]), "pp": 8}, rows=[2, 0])
    assert [read(some, name).tolist() for name in ("tp", "pp")] == [[4.0, 1.0], 8.0]


def test_layers_to_recompute_are_a_share_of_a_ranks_and_at_most_all():
    layers = {"recompute_layers": np.array([0, 1, 2, 9]), "recompute_share": 0.3, "pp": 4, "num_layers": 16}
    assert recomputed_share(layers).tolist() == [0.3, 0.25, 0.5, 1.0]
