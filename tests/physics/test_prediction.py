"""A predicted step time as a distribution: what measured runs narrow, and what they leave open."""

from statistics import NormalDist

import numpy as np
import pytest

from sweep.physics import constants, prediction, unknown_trainer
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.physics.prediction import (
    FACTORS,
    FEATURES,
    FROM_ANOTHER,
    SIZE,
    Layouts,
    Posterior,
    describe,
    describe_unknown,
    students_quantile,
)
from sweep.physics.profiles import PROFILES
from sweep.physics.step_time import PARTS, step_time_s

H100, MEGATRON = GPUS["h100"], PROFILES["megatron"]
WIDTHS = [(tp, pp, mbs, nodes) for nodes in (1, 2, 4) for tp in (1, 2, 4, 8) for pp in (1, 2, 4) for mbs in (1, 2, 4)]


def columns(rows=WIDTHS, **more):
    tp, pp, mbs, nodes = (np.array(values) for values in zip(*rows, strict=True))
    dp = np.maximum(nodes * 8 // (tp * pp), 1)
    layout = {"tp": tp, "pp": pp, "dp": dp, "micro_batch_size": mbs, "grad_accum": np.maximum(256 // (dp * mbs), 1)}
    return MODELS["8B"].as_dict() | {"sequence_length": 4096, "gpus_per_node": 8, "dtype": "bf16"} | layout | more


def where(**wanted):
    """Which of WIDTHS."""
    names = ("tp", "pp", "mbs", "nodes")
    return np.array([all(row[names.index(name)] in values for name, values in wanted.items()) for row in WIDTHS])


LAYOUTS = describe(columns(), H100, MEGATRON)


def test_before_anything_is_measured_the_median_is_the_models():
    mean, sd = Posterior().log_seconds(LAYOUTS)
    assert np.allclose(np.exp(mean), step_time_s(columns(), H100, MEGATRON))
    assert (sd > constants.NOISE.spread).all()
    assert (sd < 1).all()


def test_what_a_layout_uses_adds_its_uncertainty():
    one = {"dp": 8, "grad_accum": 8, "sequence_length": 4096, "gpus_per_node": 8, "dtype": "bf16"}
    one = MODELS["8B"].as_dict() | one

    def used(**layout):
        found = describe(one | layout, H100, MEGATRON)
        return {FACTORS[i] for i in np.flatnonzero(found.factors[0])}, float(found.prior_sd[0])

    plain, min_sd = used()
    assert plain == set()
    for factor, layout in {
        "pipeline": {"pp": 2, "dp": 4}, "tensor across nodes": {"tp": 16, "dp": 1}, "zero-3": {"zero": 3},
        "recompute": {"recompute": "full"}, "8 bits or fewer": {"dtype": "fp8"}, "context": {"cp": 2, "dp": 4},
    }.items():  # fmt: skip
        found, sd = used(**layout)
        assert factor in found
        assert sd > min_sd


def test_measured_runs_correct_the_others_and_narrow_them():
    """A cluster on which every step takes 1.5 times as long."""
    truth = LAYOUTS.log_median + np.log(1.5)
    rows = np.arange(0, len(LAYOUTS), 4)
    after = Posterior().update(LAYOUTS.take(rows), truth[rows])
    mean, sd = after.log_seconds(LAYOUTS)
    others = np.setdiff1d(np.arange(len(LAYOUTS)), rows)
    assert np.abs(mean - truth)[others].mean() < 0.05
    assert (sd[others] < LAYOUTS.prior_sd[others]).mean() > 0.95


def test_a_slow_part_is_found_and_its_share_corrected():
    """Tensor-parallel links at a third of their speed: the more a layout uses them, the slower it is predicted."""
    slow = LAYOUTS.parts.copy()
    slow[:, PARTS.index("tensor")] *= 3
    truth = np.log(slow.sum(axis=1))
    rows = np.arange(0, len(LAYOUTS), 3)
    after = Posterior().update(LAYOUTS.take(rows), truth[rows])
    corrections = after.corrections(LAYOUTS.take([0]))[0]
    assert PARTS[int(np.argmax(corrections))] == "tensor"
    mean, _ = after.log_seconds(LAYOUTS)
    others = np.setdiff1d(np.arange(len(LAYOUTS)), rows)
    assert np.abs(mean - truth)[others].mean() < 0.05
    assert np.abs(LAYOUTS.log_median - truth)[others].mean() > 0.1


def test_what_no_measured_run_used_stays_uncertain():
    flat, piped = where(pp=(1,), nodes=(1,)), where(pp=(2,), nodes=(1,))
    measured = np.flatnonzero(flat)
    after = Posterior().update(LAYOUTS.take(measured), LAYOUTS.log_median[measured])
    _, sd = after.log_seconds(LAYOUTS)
    spread = constants.FACTORS["pipeline"].spread
    assert (sd[piped] > spread).all()
    measured = np.flatnonzero(flat | piped)
    _, known = Posterior().update(LAYOUTS.take(measured), LAYOUTS.log_median[measured]).log_seconds(LAYOUTS)
    assert (known[where(pp=(4,), nodes=(1,))] < sd[where(pp=(4,), nodes=(1,))]).all(), "one pipeline informs on others"


def test_one_disturbed_run_does_not_mislead():
    truth = LAYOUTS.log_median.copy()
    truth[10] += np.log(40)
    mean, _ = Posterior().update(LAYOUTS, truth).log_seconds(LAYOUTS)
    others = np.arange(len(LAYOUTS)) != 10
    assert np.abs(mean - LAYOUTS.log_median)[others].mean() < 0.05


def test_where_the_model_errs_more_than_it_states_every_interval_widens():
    noise = np.random.default_rng(0).normal(0, 0.4, len(LAYOUTS))
    rows = np.arange(0, len(LAYOUTS), 2)
    calm, wild = (Posterior().update(LAYOUTS.take(rows), (LAYOUTS.log_median + x * noise)[rows]) for x in (0.1, 1.0))
    others = LAYOUTS.take(np.arange(1, len(LAYOUTS), 2))
    assert (wild.log_seconds(others)[1] > 1.5 * calm.log_seconds(others)[1]).all()


@pytest.mark.parametrize("seed", range(3))
def test_intervals_hold_as_often_as_they_state(seed):
    """Layouts drawn from the model itself; a third of them is measured."""
    generator = np.random.default_rng(seed)
    inside = {0.5: [], 0.9: []}
    for _ in range(30):
        covariance = Posterior().covariance(LAYOUTS)
        noise = constants.NOISE.spread * generator.standard_normal(len(LAYOUTS))
        truth = generator.multivariate_normal(LAYOUTS.log_median, covariance) + noise
        rows = generator.permutation(len(LAYOUTS))
        known, rest = rows[:36], rows[36:]
        after = Posterior().update(LAYOUTS.take(known), truth[known])
        mean, sd = after.log_seconds(LAYOUTS.take(rest))
        for share, found in inside.items():
            bound = students_quantile(0.5 + share / 2, after.degrees_of_freedom)
            found.append((np.abs(truth[rest] - mean) < bound * sd).mean())
    assert 0.4 <= np.mean(inside[0.5]) <= 0.6
    assert 0.8 <= np.mean(inside[0.9]) <= 0.97


def test_samples_share_what_is_uncertain_in_common():
    draws = Posterior().sample(LAYOUTS.take([0, 1]), 4000, np.random.default_rng(1))
    mean, _ = Posterior().log_seconds(LAYOUTS.take([0, 1]))
    assert np.allclose(draws.mean(axis=0), mean, atol=0.02)
    assert np.corrcoef(draws.T)[0, 1] > 0.8
    assert draws[:, 0].std() > 2 * (draws[:, 0] - draws[:, 1]).std()


def test_another_trainer_learns_little_from_this_one():
    here, there = LAYOUTS, describe(columns(), H100, MEGATRON, group=1)
    both = Layouts.joined([here, there])
    assert len(both) == 2 * len(here)
    after = Posterior().update(here, here.log_median + np.log(2))
    near, far = (float((after.log_seconds(one)[0] - here.log_median).mean()) for one in (here, there))
    assert near == pytest.approx(np.log(2), abs=0.05)
    assert 0 < far < 0.5 * near


def test_wild_runs_of_another_trainer_widen_little_however_many_they_are():
    here, there = LAYOUTS, describe(columns(), H100, MEGATRON, group=1)
    noise = np.random.default_rng(0).normal(0, 0.6, len(there))
    wider = []
    for number in (len(there) // 4, len(there)):
        rows = np.arange(0, number)
        after = Posterior().update(there.take(rows), (there.log_median + noise)[rows])
        wider.append((after.scale(here).max(), after.scale(there.take(rows)).max()))
    (few, few_there), (many, many_there) = wider
    assert 1.0 < few < many < 1.1 * few
    assert many**2 - 1 < 0.25 * (min(few_there, many_there) ** 2 - 1)


def test_an_update_depends_on_its_runs_alone_and_uses_the_latest():
    truth = LAYOUTS.log_median + 0.3
    once = Posterior().update(LAYOUTS, truth)
    again = Posterior().update(LAYOUTS.take([0]), truth[:1]).update(LAYOUTS, truth)
    assert np.array_equal(once.log_seconds(LAYOUTS)[0], again.log_seconds(LAYOUTS)[0])
    assert Posterior().update(LAYOUTS.take([]), np.empty(0)).anchors is None


@pytest.mark.parametrize(("share", "degrees", "wanted"), [(0.75, 8, 0.706), (0.95, 8, 1.860), (0.95, 100, 1.660)])
def test_quantiles_of_students_t(share, degrees, wanted):
    assert students_quantile(share, degrees) == pytest.approx(wanted, abs=0.005)


def test_after_runs_the_covariance_is_that_of_the_conditional_normal_distribution():
    """Runs and candidates of one layout family, conditioned by the textbook's formula (Rasmussen and Williams 2.24)."""
    rows, asked = np.arange(0, len(LAYOUTS), 9), np.arange(4, len(LAYOUTS), 9)
    known, rest = LAYOUTS.take(rows), LAYOUTS.take(asked)
    after = Posterior().update(known, known.log_median)  # as predicted: nothing is corrected, the shares stay
    prior = Posterior().covariance(Layouts.joined([known, rest]))
    n = len(known)
    noise = np.linalg.inv(after.inverse) - prior[:n, :n]
    assert np.allclose(noise, np.diag(np.diag(noise))), "between two runs noise is independent"
    wanted = prior[n:, n:] - prior[n:, :n] @ np.linalg.inv(prior[:n, :n] + noise) @ prior[:n, n:]
    found = after.covariance(rest)
    assert np.allclose(found, wanted * np.outer(after.scale(rest), after.scale(rest)))
    own = after.log_seconds(rest)[1] ** 2 - after.noise(rest)
    assert np.allclose(np.diag(found), own), "a run's spread is that of its median and the noise"


def test_a_quantile_is_that_of_students_t_about_the_median():
    one = LAYOUTS.take([0])
    mean, sd = Posterior().log_seconds(one)
    assert Posterior().quantile(one, 0.5) == pytest.approx(np.exp(mean))
    # 1.860 standard deviations hold 95 % on one side at 8 degrees of freedom
    assert Posterior().quantile(one, 0.95) == pytest.approx(np.exp(mean + 1.860 * sd), rel=0.002)
    assert Posterior().quantile(one, 0.05) == pytest.approx(np.exp(mean - 1.860 * sd), rel=0.002)


def test_parts_that_candidates_lack_are_padded_and_change_nothing():
    few = LAYOUTS.take([0, 1])
    wide = few.padded(2, 3)
    assert wide.parts.shape == (2, few.parts.shape[1] + 5)
    assert np.array_equal(wide.parts[:, 2:-3], few.parts)
    assert np.allclose(wide.log_median, few.log_median)
    assert np.allclose(wide.prior_sd, few.prior_sd)


def test_of_layouts_of_which_nothing_is_known_each_may_be_any():
    several = Layouts.similar(3)
    assert len(several) == 3
    assert np.ptp(several.log_median) == 0
    assert (several.prior_sd > constants.NOISE.spread).all()
    assert np.allclose(np.corrcoef(Posterior().sample(several, 500, np.random.default_rng(0)).T), 1.0)


@pytest.mark.parametrize(("share", "wanted"), [(0.9, 1.310415), (0.95, 1.697261), (0.975, 2.042272)])
def test_quantiles_of_students_t_to_the_second_term_of_their_expansion(share, wanted):
    """Of 30 degrees of freedom, where the third term is below 2e-4 (Abramowitz and Stegun 26.7.5 and table 26.10)."""
    assert students_quantile(share, 30) == pytest.approx(wanted, abs=6e-5 if share < 0.96 else 1.5e-4)
    assert students_quantile(1 - share, 30) == pytest.approx(-students_quantile(share, 30))


def test_all_runs_of_another_trainer_count_as_eight_tenths_of_a_run_of_its_own():
    """What a correlation of 0.3 leaves of the eight runs that the spreads count as."""
    assert pytest.approx(0.72 / 0.91) == FROM_ANOTHER


def one(**layout):
    base = {"dp": 8, "grad_accum": 8, "sequence_length": 4096, "gpus_per_node": 8, "dtype": "bf16"}
    return MODELS["8B"].as_dict() | base | layout


@pytest.mark.parametrize(("layout", "used"), [
    ({}, set()),
    ({"pp": 2, "dp": 4}, {"pipeline"}),
    ({"pp": 2, "dp": 4, "pp_schedule": "interleaved_1f1b", "virtual_stages": 2}, {"pipeline", "interleaved"}),
    ({"pp_schedule": "interleaved_1f1b", "virtual_stages": 2}, set()),
    ({"tp": 8, "dp": 1}, set()),
    ({"tp": 16, "dp": 1}, {"tensor across nodes", "several nodes"}),
    ({"dp": 9}, {"several nodes"}),
    ({"dp": 4, "cp": 2}, {"context"}),
    ({"num_experts": 1, "experts_per_token": 1, "moe_intermediate_size": 14336}, {"experts"}),
    ({"zero": 1}, set()), ({"zero": 2}, set()), ({"zero": 3}, {"zero-3"}),
    ({"recompute": "selective"}, {"recompute"}), ({"recompute": "full"}, {"recompute"}),
    ({"dtype": "fp8"}, {"8 bits or fewer"}), ({"dtype": "fp4"}, {"8 bits or fewer"}), ({"dtype": "fp16"}, set()),
    ({"compile": True}, {"compiled"}), ({"compile": False}, set()),
])  # fmt: skip
def test_a_layout_uses_just_the_factors_of_what_it_has(layout, used):
    found = describe(one(**layout), H100, MEGATRON).factors[0]
    assert {name for name, share in zip(FACTORS, found, strict=True) if share} == used
    assert set(found) <= {0.0, 1.0}


@pytest.mark.parametrize(("layout", "features"), [
    ({"zero": 0}, [0, 0, 3, 0, 0, 12, 12, 3, 0, 0, 0, 0]),
    ({"tp": 2, "pp": 4, "dp": 16, "cp": 2, "ep": 8, "micro_batch_size": 4, "grad_accum": 32, "zero": 1},
     [1, 2, 8, 1, 3, 13, 12, 5, 1, 0, 0, 0]),
    ({"zero": 2, "recompute": "selective"}, [0, 0, 3, 0, 0, 12, 12, 3, 1, 0, 0, 0]),
    ({"zero": 3, "recompute": "full"}, [0, 0, 3, 0, 0, 12, 12, 3, 1, 2, 0, 2]),
    ({"tp": 8, "dp": 1}, [3, 0, 3, 0, 0, 12, 12, 3, 0, 0, 0, 0]),
    ({"tp": 16, "dp": 1}, [4, 0, 4, 0, 0, 12, 12, 3, 0, 0, 2, 0]),
])  # fmt: skip
def test_a_layouts_place_among_others_is_in_doublings_and_kinds_are_steps_of_two(layout, features):
    """tp, pp, GPUs, cp, ep, tokens of a micro-batch, hidden size, micro-batches; ZeRO, its stage 3, tp beyond a node,
    and everything recomputed."""
    found = describe(one(**layout), H100, MEGATRON).features[0]
    assert found.tolist() == pytest.approx(features)
    assert len(found) == FEATURES
    assert found[SIZE] == np.log2(layout.get("dp", 8) * layout.get("tp", 1) * layout.get("pp", 1) * layout.get("cp", 1))


def test_a_layouts_own_spread_is_that_of_its_parts_by_their_share_of_its_factors_and_of_what_all_have():
    """Two parts of 3 and 1 seconds, known to 10 and 40 %; a factor of 8 %; trainer, residual and noise of 6, 6, 4 %."""
    few = made(parts=[[3.0, 1.0]], spreads=[[0.1, 0.4]])
    few.factors[0, FACTORS.index("pipeline")] = 1.0
    wanted = (0.75 * 0.1) ** 2 + (0.25 * 0.4) ** 2 + 0.08**2 + 0.06**2 + 0.06**2 + 0.04**2
    assert few.prior_sd[0] == pytest.approx(np.sqrt(wanted))
    assert few.log_median[0] == pytest.approx(np.log(4.0))


def made(parts, spreads=None, *, apart=0.0, group=0):
    """Layouts of given parts, each so many doublings of its number of GPUs from a layout at zero."""
    parts = np.array(parts)
    plain = Layouts.similar(len(parts))
    features = plain.features.copy()
    features[:, SIZE] = apart
    spreads = np.zeros_like(parts) if spreads is None else np.array(spreads)
    return Layouts(parts, spreads, plain.factors.copy(), features, plain.groups + group, plain.causes)


def known(misfit, *, apart=0.0, group=0):
    """After one run for each of these misfits."""
    runs = made(np.ones((len(misfit), 1)), apart=apart, group=group)
    return Posterior(anchors=runs, misfit=np.array(misfit), disturbed=np.array(misfit))


@pytest.mark.parametrize("apart", [0.0, 1.0, -2.0])
def test_a_run_counts_for_layouts_on_about_as_many_gpus(apart):
    """By the normal density of the doublings between them, among eight runs that err as much as stated."""
    weight = np.exp(-(apart**2) / 2)
    layouts, runs = made([[1.0]], apart=1.0), known([9.0], apart=1.0 + apart)
    assert runs.scale(layouts)[0] ** 2 == pytest.approx((8 + 9 * weight) / (8 + weight))


def test_runs_that_agree_with_the_model_narrow_nothing_and_noise_is_never_below_the_usual():
    layouts = made([[1.0]])
    assert known([0.0, 0.0]).scale(layouts)[0] == 1.0
    assert known([0.0, 0.0]).noise(layouts)[0] == 0.04**2


def test_of_one_wild_run_the_noise_counts_up_to_a_factor_of_e():
    layouts = made([[1.0]])
    for square, counted in ((0.25, 0.25), (1.0, 1.0), (9.0, 1.0)):
        assert known([square]).noise(layouts)[0] == pytest.approx((8 * 0.04**2 + counted) / 9)


def test_all_runs_of_another_trainer_together_count_less_than_one_of_its_own():
    layouts, own = made([[1.0]]), (8 + 9) / 9
    for number in (1, 10, 1000):
        found = known([9.0] * number, group=1).scale(layouts)[0] ** 2
        share = FROM_ANOTHER / (number + 8) * number
        assert found == pytest.approx((8 + 9 * share) / (8 + share))
        assert found < own


def test_what_two_layouts_share_is_their_parts_factors_trainer_and_the_more_of_the_residual_the_nearer_they_are():
    """Residuals of 6 % over a length of two doublings; between two trainers three tenths, and no common trainer."""
    parts = {"parts": [[3.0, 1.0]], "spreads": [[0.1, 0.4]]}
    here = made(**parts)
    common = (0.75 * 0.1) ** 2 + (0.25 * 0.4) ** 2

    def shared(there):
        return float(Posterior().covariance(Layouts.joined([here, there]))[0, 1])

    for apart in (0.0, 1.0, 2.0, 4.0):
        near = 0.06**2 * np.exp(-(apart**2) / 8)
        assert shared(made(**parts, apart=apart)) == pytest.approx(common + near + 0.06**2)
        assert shared(made(**parts, apart=apart, group=1)) == pytest.approx(0.3 * (common + near))
    at_one, at_four = made(**parts, apart=1.0), made(**parts, apart=4.0)
    between = Posterior().covariance(Layouts.joined([at_one, at_four]))[0, 1]
    assert between == pytest.approx(shared(made(**parts, apart=3.0))), "the distance counts, not the place"
    both = made(**parts)
    for layouts in (here, both):
        layouts.factors[0, FACTORS.index("experts")] = 1.0
    assert shared(both) == pytest.approx(common + 0.25**2 + 2 * 0.06**2)


@pytest.mark.parametrize(("error", "variance"), [(0.0, 0.8), (1.0, 1.0), (3.0, 2.6), (10.0, 20.8)])
def test_a_run_counts_as_noisier_the_more_of_it_is_unexplained(error, variance):
    """Of Student's t with four degrees of freedom, in usual errors and variances: of the normal whose variance belongs
    to an error (Lange, Little and Taylor 1989, section 3: (nu + 1) / (nu + d^2) is its inverse)."""
    assert prediction._noise(np.array([(0.04 * error) ** 2]))[0] == pytest.approx(variance * 0.04**2)


def test_each_linearisation_moves_a_part_by_half_a_unit_and_there_are_six():
    """A part of which a fifth of a step was predicted explains one that took 100 times as long. The sixth linearisation
    is about what the five before it reached, a part of exp(2.5) times its seconds."""
    runs = made([[0.8, 0.2]], spreads=[[0.0, 3.0]])
    after = Posterior().update(runs, runs.log_median + np.log(100))
    grown = 0.2 * np.exp(5 * 0.5)
    assert after.shares[0] == pytest.approx([0.8 / (0.8 + grown), grown / (0.8 + grown)])


def test_no_part_is_corrected_by_more_than_a_factor_of_e_to_the_fourth():
    runs = made([[1.0]], spreads=[[3.0]])
    for sign in (1, -1):
        after = Posterior().update(runs, runs.log_median + 50 * sign)
        assert after.corrections(runs)[0, 0] == 4.0 * sign


def test_the_latest_512_runs_are_used():
    runs = made(np.ones((513, 1)), spreads=np.full((513, 1), 0.1))
    seconds = np.zeros(513)
    seconds[0] = 5.0
    after = Posterior().update(runs, seconds)
    assert len(after.weights) == 512
    assert after.log_seconds(runs.take([0]))[0] == pytest.approx(0.0, abs=1e-9)
    assert after.degrees_of_freedom == 8 + 512


def test_draws_have_the_heavier_tails_of_students_t():
    """At 8 degrees of freedom 95 % of draws are below 1.860 standard deviations; of normal ones 96.9 %."""
    layouts = made([[1.0]], spreads=[[0.3]])
    draws = Posterior().sample(layouts, 40_000, np.random.default_rng(3))[:, 0]
    sd = np.sqrt(Posterior().covariance(layouts)[0, 0])
    assert np.mean(draws < 1.860 * sd) == pytest.approx(0.95, abs=0.004)
    assert np.mean(np.abs(draws) < 0.706 * sd) == pytest.approx(0.5, abs=0.01)


def test_a_run_far_from_its_prediction_is_first_taken_as_disturbed_by_what_its_own_spread_leaves():
    """One run of a layout that is known to 7 %, twice as slow as predicted: most of it is noise. Of one that is known
    to a factor of three nearly all is learned."""
    for spread, learned in ((0.0, (0.0, 0.35)), (1.0, (0.55, 0.7))):
        runs = made([[1.0]], spreads=[[spread]])
        mean, _ = Posterior().update(runs, np.array([np.log(2)])).log_seconds(runs)
        assert learned[0] < mean[0] < learned[1]


def test_a_trainer_without_a_profile_is_described_by_amounts_of_which_each_factor_is_unknown():
    columns_ = one(nodes=2, recompute="none", tp=2) | {"dp": np.array([8, 16])}
    found = describe_unknown(columns_, H100, group=5)
    assert found.parts.shape == (2, len(unknown_trainer.NAMES))
    assert found.features[:, SIZE].tolist() == [4, 5]
    assert found.groups.tolist() == [5, 5]
    assert (found.spreads == 1.0).all()
    assert not found.factors.any()


@pytest.mark.parametrize(("z", "first", "second"), [(1, 0.5, 0.25), (2, 2.5, 3.0625), (-1, -0.5, -0.25)])
def test_quantiles_of_students_t_have_both_terms_of_the_published_expansion(z, first, second):
    """Abramowitz and Stegun 26.7.5: g1 = (z^3 + z) / 4 and g2 = (5 z^5 + 16 z^3 + 3 z) / 96, whole numbers at z = 1."""
    share = NormalDist().cdf(z)
    for n in (5, 8, 20):
        assert students_quantile(share, n) == pytest.approx(z + first / n + second / n**2, abs=1e-9)
