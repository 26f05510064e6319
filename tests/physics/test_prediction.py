"""A predicted step time as a distribution, before anything is measured."""

import numpy as np
import pytest

from sweep.physics import constants
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.physics.prediction import CAUSES, DOUBLINGS, FACTORS, Layouts, by_size, corrected, describe
from sweep.physics.profiles import PROFILES
from sweep.physics.step_time import PARTS, step_time_s

H100, MEGATRON = GPUS["h100"], PROFILES["megatron"]
WIDTHS = [(tp, pp, mbs, nodes) for nodes in (1, 2, 4) for tp in (1, 2, 4, 8) for pp in (1, 2, 4) for mbs in (1, 2, 4)]


def columns(rows=WIDTHS, **more):
    tp, pp, mbs, nodes = (np.array(values) for values in zip(*rows, strict=True))
    dp = np.maximum(nodes * 8 // (tp * pp), 1)
    layout = {"tp": tp, "pp": pp, "dp": dp, "micro_batch_size": mbs, "grad_accum": np.maximum(256 // (dp * mbs), 1)}
    return MODELS["8B"].as_dict() | {"sequence_length": 4096, "gpus_per_node": 8, "dtype": "bf16"} | layout | more


LAYOUTS = describe(columns(), H100, MEGATRON)


def test_before_anything_is_measured_the_median_is_the_models():
    sd = LAYOUTS.prior_sd
    assert np.allclose(np.exp(LAYOUTS.log_median), step_time_s(columns(), H100, MEGATRON))
    assert (sd > constants.NOISE.spread).all()
    assert (sd < 1).all()


def test_parts_that_candidates_lack_are_padded_and_change_nothing():
    few = LAYOUTS.take([0, 1])
    wide = few.padded(2, 3)
    assert wide.parts.shape == (2, few.parts.shape[1] + 5)
    assert np.array_equal(wide.parts[:, 2:-3], few.parts)
    assert np.allclose(wide.log_median, few.log_median)
    assert np.allclose(wide.prior_sd, few.prior_sd)


def test_parts_are_corrected_by_their_logarithms():
    theta = np.linspace(-0.5, 0.5, LAYOUTS.parts.size).reshape(LAYOUTS.parts.shape)
    wanted = LAYOUTS.parts * np.exp(theta)
    total, shares = corrected(LAYOUTS, theta)
    assert np.exp(total) == pytest.approx(wanted.sum(axis=1))
    assert shares * np.exp(total)[:, None] == pytest.approx(wanted)


def test_of_layouts_of_which_nothing_is_known_each_may_be_any():
    several = Layouts.similar(3)
    assert len(several) == 3
    assert np.ptp(several.log_median) == 0
    assert (several.prior_sd > constants.NOISE.spread).all()


def one(**layout):
    base = {"dp": 8, "grad_accum": 8, "sequence_length": 4096, "gpus_per_node": 8, "dtype": "bf16"}
    return MODELS["8B"].as_dict() | base | layout


@pytest.mark.parametrize(("layout", "used"), [
    ({}, set()), ({"dp": 4}, set()),
    ({"pp": 2, "dp": 4}, {"pipeline"}),
    ({"pp": 2, "dp": 4, "pp_schedule": "interleaved_1f1b", "virtual_stages": 2}, {"pipeline"}),
    ({"pp_schedule": "interleaved_1f1b", "virtual_stages": 2}, set()),
    ({"tp": 8, "dp": 1}, set()),
    ({"tp": 16, "dp": 1}, {"tensor across nodes", "doublings of nodes"}),
    ({"dp": 9}, {"doublings of nodes"}),
    ({"dp": 4, "cp": 2}, {"context"}),
    ({"num_experts": 1, "experts_per_token": 1, "moe_intermediate_size": 14336}, {"experts"}),
    ({"zero": 1}, set()), ({"zero": 3}, set()),
    ({"recompute": "selective"}, {"recompute"}), ({"recompute": "full"}, {"recompute"}),
    ({"dtype": "fp8"}, set()),
    ({"compile": True}, {"compiled"}), ({"compile": False}, set()),
])  # fmt: skip
def test_a_layout_uses_just_the_factors_of_what_it_has(layout, used):
    found = describe(one(**layout), H100, MEGATRON).factors[0]
    assert {name for name, share in zip(FACTORS, found, strict=True) if share} == used
    assert set(np.delete(found, FACTORS.index("doublings of nodes"))) <= {0.0, 1.0}


def test_a_layouts_own_spread_is_that_of_its_parts_by_their_share_of_its_factors_and_of_what_all_have():
    """Two parts of 3 and 1 seconds, known to 10 and 40 %; a factor of 8 %; trainer, residual and noise of 6, 6, 4 %."""
    few = made(parts=[[3.0, 1.0]], spreads=[[0.1, 0.4]])
    few.factors[0, FACTORS.index("pipeline")] = 1.0
    wanted = (0.75 * 0.1) ** 2 + (0.25 * 0.4) ** 2 + 0.08**2 + 0.06**2 + 0.06**2 + 0.04**2
    assert few.prior_sd[0] == pytest.approx(np.sqrt(wanted))
    assert few.log_median[0] == pytest.approx(np.log(4.0))


def made(parts, spreads):
    """Layouts of given parts."""
    plain = Layouts.similar(len(parts))
    return Layouts(np.array(parts), np.array(spreads), plain.factors.copy(), plain.causes)


def test_small_runs_say_nothing_of_what_larger_sizes_add():
    """Each doubling of the nodes, each number of nodes that blocking sends wait on, and each model's experts apart."""
    columns_ = one(grad_accum=7, pp=2) | {"dp": np.array([4, 8, 32])}
    plain = describe(columns_, H100, PROFILES["nanotron"])
    found = by_size(plain, columns_, np.zeros(3), np.full(3, True))
    sends, doublings, experts = np.split(found.causes[:, len(CAUSES) :], [len(DOUBLINGS), 2 * len(DOUBLINGS)], axis=1)
    assert [np.flatnonzero(row).tolist() for row in sends] == [[], [0], [2]]
    assert doublings[:, :4].tolist() == [[0] * 4, [0.05, 0, 0, 0], [0.05, 0.05, 0.05, 0]]
    shared = found.loadings[:, len(CAUSES) : len(CAUSES) + len(DOUBLINGS)]
    assert [np.unique(row).tolist() for row in shared] == [[1.0 * (name == "blocked")] for name in PARTS]
    assert not experts.any()
    assert not found.spreads[:, PARTS.index("blocked")].any()
    assert not found.factors[:, FACTORS.index("doublings of nodes")].any()
    assert found.prior_sd[2] > found.prior_sd[1] > found.prior_sd[0]

    mixture = {"num_experts": 8, "experts_per_token": 2, "moe_intermediate_size": 14336}
    columns_ = one(**mixture) | {"dp": np.array([8, 8, 8])}
    plain = describe(columns_, H100, MEGATRON)
    found = by_size(plain, columns_, np.array([0, 0, 1]), np.full(3, False))
    own = found.causes[:, len(CAUSES) + 2 * len(DOUBLINGS) :]
    assert own.tolist() == [[0.28, 0], [0.28, 0], [0, 0.28]]
    assert found.prior_sd == pytest.approx(plain.prior_sd)
