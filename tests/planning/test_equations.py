"""The two equations of a layout, and what is offered where no batch meets them."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.errors import SweepError
from tests.support.made_plans import BASE, SHAPE, plan_of
from tests.support.refusals import mistakes_of


def brute_force(gpus, tokens, sequence, tolerance, axes):
    """The layouts of the two equations, one candidate at a time."""
    found = set()
    for tp, pp, cp, mbs in itertools.product(*axes):
        if gpus % (tp * pp * cp):
            continue
        dp = gpus // (tp * pp * cp)
        unit = dp * mbs * sequence
        gas = min(range(1, tokens // unit + 3), key=lambda gas: (abs(gas * unit - tokens), gas))
        fits = abs(gas * unit - tokens) <= tolerance * tokens
        if fits and 12 % tp == 0 and (6 % tp == 0 or tp % 6 == 0) and pp <= 12 and gas >= pp - 1 and sequence % cp == 0:
            found.add((dp, tp, pp, cp, mbs, gas))
    return found


def impossible_batch(text):
    """Whether the grid is refused for its batch, which it must be only where the equations have no solution."""
    try:
        plan_of(text)
    except SweepError as error:
        return "no layout has a global batch" in str(error)
    return False


sizes = st.lists(st.integers(1, 12), min_size=1, max_size=5, unique=True)


@settings(max_examples=60)
@given(
    tp=sizes,
    pp=sizes,
    cp=sizes,
    mbs=sizes,
    gpus=st.integers(1, 24),
    nodes=st.integers(1, 6),
    batch=st.integers(1, 400),
    sequence=st.sampled_from([32, 48, 60]),
    tolerance=st.sampled_from([0, 0.01, 0.2]),
    data=st.data(),
)
def test_the_two_equations_against_one_candidate_at_a_time(
    tp, pp, cp, mbs, gpus, nodes, batch, sequence, tolerance, data
):
    tokens = batch * sequence + (data.draw(st.integers(0, sequence - 1)) if tolerance else 0)
    text = f"""
models: {{small: {SHAPE}}}
nodes: [{nodes}]
sequence_length: {sequence}
global_batch: {tokens}
global_batch_tolerance: {tolerance}
tp: {tp}
pp: {pp}
cp: {cp}
micro_batch_size: {mbs}
tp_across_nodes: true
site: {{gpu: h100, gpus_per_node: {gpus}}}
"""
    wanted = brute_force(gpus * nodes, tokens, sequence, tolerance, (tp, pp, cp, mbs))
    if not wanted and impossible_batch(text):
        return
    plan = plan_of(text)
    names = ("dp", "tp", "pp", "cp", "micro_batch_size", "grad_accum")
    rows = plan.table.to_pylist()
    assert {tuple(row[n] for n in names) for row in rows if row["status"] == "run"} == wanted
    assert len(rows) == len(tp) * len(pp) * len(cp) * len(mbs)
    for row in rows:
        if row["dp"] is not None:
            assert row["dp"] * row["tp"] * row["pp"] * row["cp"] == gpus * nodes
        else:
            assert any(reason.startswith("gpu_equation") for reason in row["reasons"])
        if row["grad_accum"] is not None:
            made = row["dp"] * row["micro_batch_size"] * row["grad_accum"] * sequence
            assert made == row["global_batch_tokens"]
            assert abs(made - tokens) <= tolerance * tokens
        assert (row["status"] == "run") == (row["reasons"] == [])


def refused(batch, sequence=64, micro=7):
    text = BASE.replace("global_batch: 3072", f"global_batch: {batch}").replace("length: 64", f"length: {sequence}")
    return mistakes_of(plan_of, text + f"micro_batch_size: {micro}\n")[0].remedy


@pytest.mark.parametrize(
    ("batch", "sequence", "offered"),
    [
        (1_000_000, 64, True),
        (2**20, 64, False),  # as asked
        (955_000, 64, True),
        (1_170_000, 64, False),  # more than a tenth off
        (1_000_000, 3000, False),  # 2^20 is no whole number of sequences
        (1_500_000, 3000, False),
    ],
)
def test_a_power_of_two_is_offered_where_it_is_near_and_a_whole_batch(batch, sequence, offered):
    assert ("near values: 1Mi," in refused(batch, sequence)) == offered


def test_an_impossible_batch_is_stated_with_its_tolerance_and_the_tolerance_that_would_do():
    """Sequences of 64 on six GPUs: micro-batches of 7 make steps of 2,688 tokens, 312 too few."""
    text = BASE.replace("global_batch: 3072", "global_batch: 3000") + "micro_batch_size: 7\n"
    line = 1 + text[: text.index("global_batch:")].count("\n")
    for tolerance, stated in ((0, " at"), (0.02, " within 2 % at"), (0.005, " within 0.5 % at")):
        (mistake,) = mistakes_of(plan_of, text + f"global_batch_tolerance: {tolerance}\n")
        assert (mistake.file, mistake.line, mistake.path) == ("grid.yaml", line, "global_batch")
        assert mistake.fact == f"no layout has a global batch of 3,000 tokens{stated} sequence_length 64"
        assert mistake.remedy == "near values: 2,688; or global_batch_tolerance: 0.104"
    assert plan_of(text + "global_batch_tolerance: 0.104\n").runs
    assert plan_of(text, overrides=["global_batch=2688"]).runs


@pytest.mark.parametrize(("micro", "accepted"), [(44, True), (36, True), (45, False), (35, False)])
def test_a_batch_that_is_off_by_just_the_tolerance_is_accepted(micro, accepted):
    """Ten per cent of 40 sequences on one GPU: 36 to 44."""
    text = BASE.replace("gpus_per_node: 6", "gpus_per_node: 1").replace("3072", str(40 * 64))
    plan = plan_of(text + f"global_batch_tolerance: 0.1\nmicro_batch_size: [1, {micro}]\n")
    assert (micro in {planned.run().layout.micro_batch_size for planned in plan.runs}) is accepted


def test_the_nearest_is_offered_first_the_smaller_of_two_equally_near_ones_and_its_tolerance():
    """Sequences of 64 on six GPUs: steps of 5 times 384 tokens and of 7 or 8 times, and 6 times are asked for."""
    assert refused(6 * 384, micro="[4, 5, 7, 9]").startswith("near values: 1,920, 2,688, 1,536; or ")
    assert refused(1344, micro="7") == "near values: 2,688", "neither what was asked nor a tolerance of 1"
    assert refused(6 * 384, micro="[5, 8]") == "near values: 1,920, 3Ki; or global_batch_tolerance: 0.167"


def refused_per_gpu(further):
    """The remedy for 500 tokens per GPU on one and two nodes of six GPUs."""
    text = BASE.replace("global_batch: 3072", "tokens_per_gpu: 500") + further
    return mistakes_of(plan_of, text, overrides=["nodes=[1,2]"])[0].remedy


def test_batches_near_those_of_one_node_count_are_offered_and_none_of_another():
    assert refused_per_gpu("").startswith("near values: 512; or ")


@pytest.mark.parametrize(
    ("micro", "remedy"),
    [
        (3, "near values: 496; or global_batch_tolerance: 0.008"),  # 31 steps of 192 tokens, on each GPU 496
        (1, "global_batch_tolerance: 0.003"),  # 94 steps of 64 tokens are no whole number on each of 12 GPUs
    ],
)
def test_what_is_near_on_the_first_node_count_that_has_a_layout_is_offered_where_each_gpu_has_whole_tokens(
    micro, remedy
):
    """Twelve stages need two nodes."""
    assert refused_per_gpu(f"pp: 12\nmicro_batch_size: {micro}\n") == remedy
