"""Covariances of layouts' effects, against their definition: of one axis, of each pair, of all at once."""

import itertools
import math

import numpy as np
import pytest

from sweep.search.layout_kernel import LayoutKernel, axes_of

TP, KIND = np.log2(np.array([1.0, 2.0, 8.0, 1.0])), np.array([0, 1, 0, 2])
ZERO = 2.0 * np.array([0.0, 1.0, 3.0, 3.0])
AXES = {"tp": TP, "kind": KIND, "zero": ZERO}


def correlations(a, b):
    """Of each axis: exp(-doublings / 2); two categories are two lengths apart."""
    tp, zero = (math.exp(-abs(axis[a] - axis[b]) / 2) for axis in (TP, ZERO))
    return [tp, 1.0 if KIND[a] == KIND[b] else math.exp(-2.0), zero]


def by_order(a, b):
    one = correlations(a, b)
    return [sum(one), sum(x * y for x, y in itertools.combinations(one, 2)), math.prod(one)]


def test_covariances_are_sums_over_axes_and_pairs_and_the_product_of_all():
    kernel = LayoutKernel(AXES, 4)
    everyone = np.arange(4)
    wanted = np.array([[by_order(a, b) for b in everyone] for a in everyone]).transpose(2, 0, 1)
    assert kernel.columns(everyone, everyone) == pytest.approx(wanted)
    assert kernel.variances == pytest.approx(by_order(0, 0)) == [3, 3, 1]


def test_values_that_no_measured_run_has_are_untested():
    untested = LayoutKernel(AXES, 4).untested(np.array([0, 1]), np.arange(4))
    # tp 8; the kind 2; ZeRO 3
    assert sorted(map(tuple, untested.T.astype(int).tolist())) == [(0, 0, 0, 1), (0, 0, 1, 0), (0, 0, 1, 1)]
    assert LayoutKernel(AXES, 4).untested(np.arange(4), np.arange(4)).shape == (4, 0)


KINDS = [("mine", "1B", '{"a": 1}', "{}"), ("mine", "", '{"a": 2}', '{"X": "1"}'), ("mine", "", "{}", '{"X": "1"}')]


def test_axes_are_what_varies_in_doublings_or_as_categories():
    columns = {
        "tp": np.array([1, 2, 8]), "dp": np.array([8, 4, 1]), "zero": np.array([0, 1, 3]), "pp": np.array([2, 2, 2]),
        "recompute": np.array(["none", "full", "none"]), "gpus_per_node": np.array([8, 4, 8]), "num_layers": 16,
        "hidden_size": np.array([1024, 1024, 2048]),
    }  # fmt: skip
    found = {name: position.tolist() for name, position in axes_of(columns, KINDS).items()}
    assert found == {
        "tp": [0, 1, 3],
        "zero": [0, 2, 6],
        "recompute": [1, 0, 1],
        "model": [pytest.approx(24), pytest.approx(24), pytest.approx(26)],  # 16 layers of hidden_size squared
        "params.a": [0, 1, 2],
        "env.X": [1, 0, 0],
    }
    assert axes_of(columns, KINDS)["recompute"].dtype.kind == "i"


@pytest.mark.parametrize(("gpus_per_node", "wanted"), [(4, [0, 0, 2]), (8, None), (1, [0, 2, 2])])
def test_tensor_parallelism_across_nodes_is_an_axis_where_only_some_runs_have_it(gpus_per_node, wanted):
    columns = {"tp": np.array([1, 2, 8]), "gpus_per_node": gpus_per_node}
    found = axes_of(columns, [("mine", "", "{}", "{}")] * 3).get("tp across nodes")
    assert (None if found is None else found.tolist()) == wanted
    for others in ({"tp": np.array([2, 4, 8]), "gpus_per_node": 1}, {"tp": np.array([1, 2, 8])}, {"gpus_per_node": 4}):
        assert "tp across nodes" not in axes_of(others, KINDS)
