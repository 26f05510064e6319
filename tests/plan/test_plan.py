"""Plans: the two equations, every reason, the same plan in any order, and what is refused."""

import dataclasses
import itertools
import random
import tracemalloc

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.contract import Layout, Rule, Workload
from sweep.errors import SweepError
from sweep.inputs.load import parse_grid
from sweep.plan.build import Builder, build
from sweep.plan.expand import chunks, products
from sweep.plan.rules import rules_for
from sweep.plan.runs import Plan, runs_of, to_table
from sweep.plan.summary import COMMONEST, summary

AXES = frozenset(("tp", "pp", "cp", "ep", "zero", "micro_batch_size", "recompute", "pp_schedule", "dtype", "compile"))
ANY = Workload(
    name="any",
    main="nowhere:main",
    axes=AXES,
    params={"optimizer": "adamw", "width": 1.0, "fused": True},
    choices={
        "recompute": ("none", "selective", "full"),
        "pp_schedule": ("gpipe", "1f1b", "interleaved_1f1b"),
        "dtype": ("bf16", "fp32"),
        "optimizer": ("adamw", "sgd"),
    },
)
SHAPE = "{num_layers: 12, hidden_size: 96, num_heads: 12, num_kv_heads: 6, intermediate_size: 256, vocab_size: 512}"
BASE = f"""\
models: {{small: {SHAPE}}}
nodes: [1]
sequence_length: 64
global_batch: 3072
site: {{gpu: h100, gpus_per_node: 6}}
"""


def plan_of(text, workload=ANY, overrides=()):
    grid = parse_grid(text, "grid.yaml", overrides)
    return build(grid, grid.site, workload)


def rejected(plan):
    return [row for row in to_table(plan).to_pylist() if row["status"] == "rejected"]


def reasons(plan):
    return {reason for row in rejected(plan) for reason in row["reasons"]}


def by_rule(plan):
    return {entry["rule"]: entry["candidates"] for entry in summary(plan)["rejected_by_rule"]}


def test_a_run_equals_its_json():
    plan = plan_of(
        BASE + "tp: [1, 2, 3]\npp: auto\nep: 1\nrepeats: 2\nparams: {optimizer: [adamw, sgd]}\nenv: {B: [1, '%s']}\n"
    )
    table = to_table(plan).to_pylist()
    assert len(plan.runs) == len({planned.run_id for planned in plan.runs}) > 20
    for planned, row in zip(plan.runs, table, strict=False):
        run = planned.run()
        assert run.canonical_json() == planned.run_json
        assert run.run_id == planned.run_id
        assert run.gpus == run.layout.gpus
        assert run.global_batch_tokens == row["global_batch_tokens"] == 3072
        assert all(
            row[name] == getattr(run.layout, name) for name in (field.name for field in dataclasses.fields(Layout))
        )
        assert (row["model"], row["nodes"], row["repeat"], row["reasons"]) == (run.model, run.nodes, run.repeat, [])


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
    rows = to_table(plan).to_pylist()
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


def test_every_reason_is_stored_with_its_numbers():
    text = BASE + "tp: 5\npp: 17\ncp: 5\nep: 2\nmicro_batch_size: 7\nglobal_batch_tolerance: 0.5\n"
    text += "constraints: ['tp <= 4', 'nodes > 0']\ninclude: [{tp: 1, pp: 1, cp: 1, ep: 1}]\n"
    plan = plan_of(text)
    (row,) = rejected(plan)
    assert row["dp"] is row["grad_accum"] is row["global_batch_tokens"] is None
    assert row["reasons"] == [
        "gpu_equation: tp*pp*cp = 5*17*5 = 425 does not divide the 6 GPUs",
        "heads_by_tp: tp=5 does not divide the 12 attention heads",
        "kv_heads_by_tp: tp=5 and the 6 kv heads: neither divides the other",
        "layers_by_stages: pp=17 stages for 12 layers and 4 further blocks",
        "sequence_by_cp: cp=5 does not divide the sequence of 64",
        "ep_without_experts: ep=2, but small has no experts",
        "constraints[0]: tp <= 4 does not hold",
    ]


def test_reasons_that_need_a_whole_dp_are_absent_without_one():
    plan = plan_of(BASE + "tp: [1, 4]\nconstraints: ['dp < 1', 'grad_accum < 1']\n")
    by_tp = {row["tp"]: [reason.split(":")[0] for reason in row["reasons"]] for row in rejected(plan)}
    assert by_tp == {1: ["constraints[0]", "constraints[1]"], 4: ["gpu_equation", "kv_heads_by_tp"]}


def test_micro_batches_must_fill_the_pipeline():
    plan = plan_of(BASE + "micro_batch_size: 12\npp: [3, 6]\n")
    assert [planned.run().layout.pp for planned in plan.runs] == [3]
    assert reasons(plan) == {"micro_batches_by_pp: grad_accum=4 micro-batches cannot fill pp=6 stages (at least pp-1)"}


def test_tp_stays_in_a_node_unless_allowed():
    text = BASE.replace("nodes: [1]", "nodes: [2]") + "tp: [6, 12]\n"
    assert reasons(plan_of(text)) == {
        "tp_within_node: tp=12 is wider than a node of 6 GPUs (tp_across_nodes: true allows it)"
    }
    assert {p.run().layout.tp for p in plan_of(text + "tp_across_nodes: true\n").runs} == {6, 12}


def test_auto_axes():
    text = (
        BASE.replace("nodes: [1]", "nodes: [2]") + "tp: auto\npp: auto\nzero: auto\nmicro_batch_size: auto\ncp: auto\n"
    )
    text += "recompute: auto\ncompile: auto\ndtype: auto\nep: auto\n"
    rows = to_table(plan_of(text)).to_pylist()
    assert {row["tp"] for row in rows} == {1, 2, 3, 6}
    assert {row["pp"] for row in rows} == {1, 2, 3, 4, 6, 12}
    assert {row["cp"] for row in rows} == {1, 2, 4}
    assert {row["zero"] for row in rows} == {0, 1, 2, 3}
    assert {row["micro_batch_size"] for row in rows} == set(range(1, 17))
    assert {row["recompute"] for row in rows} == {"none", "selective", "full"}
    assert {row["compile"] for row in rows} == {False, True}
    assert {row["dtype"] for row in rows} == {"bf16", "fp32"}
    assert {row["ep"] for row in rows} == {1}
    assert {row["tp"] for row in to_table(plan_of(text + "tp_across_nodes: true\n")).to_pylist()} == {1, 2, 3, 4, 6, 12}


def test_experts():
    text = BASE.replace(SHAPE, "tiny-moe").replace("gpus_per_node: 6", "gpus_per_node: 8").replace("3072", "4096")
    assert {p.run().layout.ep for p in plan_of(text + "ep: auto\n").runs} == {1, 2, 4, 8}
    assert "experts_by_ep: ep=3 does not divide the 8 experts" in reasons(plan_of(text + "ep: [1, 3]\n"))
    piped = plan_of(text + "ep: [1, 8]\npp: 2\n")
    assert "ep_by_replicas: ep=8 does not divide dp*cp*tp = 4*1*1" in reasons(piped)


def test_a_schedule_without_a_pipeline_is_no_second_run():
    plan = plan_of(BASE + "pp: [1, 2]\npp_schedule: [gpipe, interleaved_1f1b]\n")
    found = sorted((p.run().layout.pp, p.run().layout.pp_schedule) for p in plan.runs)
    assert found == [(1, "1f1b"), (2, "gpipe"), (2, "interleaved_1f1b")]


def test_weak_scaling_gives_each_gpu_the_same():
    text = BASE.replace("global_batch: 3072", "tokens_per_gpu: 512").replace("nodes: [1]", "nodes: [1, 2, 4]")
    assert {p.nodes: p.run().global_batch_tokens for p in plan_of(text).runs} == {1: 3072, 2: 6144, 4: 12288}


def test_parameters_and_variables_are_axes_and_columns():
    text = BASE + "params: {optimizer: [adamw, sgd], width: [1, 2.5], fused: true}\nenv: {ALGO: [Ring, Tree]}\n"
    text += "constraints: [\"optimizer == 'sgd' or ALGO in ['Ring']\", 'width < 2 or not fused or tp == 1']\n"
    runs = [planned.run() for planned in plan_of(text).runs]
    assert {(r.params["optimizer"], r.params["width"], r.env["ALGO"]) for r in runs} == {
        ("adamw", 1, "Ring"), ("adamw", 2.5, "Ring"),
        ("sgd", 1, "Ring"), ("sgd", 1, "Tree"), ("sgd", 2.5, "Ring"), ("sgd", 2.5, "Tree"),
    }  # fmt: skip
    assert all(r.params["fused"] is True for r in runs)


def test_include_adds_points_once_and_exclude_drops_them():
    text = BASE + "tp: [1, 2]\ninclude:\n  - {tp: 3, zero: [1, 3]}\n  - {tp: 1}\n  - {nodes: 2, tp: 6}\n"
    runs = [planned.run() for planned in plan_of(text).runs]
    assert sorted((r.nodes, r.layout.tp, r.layout.zero) for r in runs) == [
        (1, 1, 0),
        (1, 2, 0),
        (1, 3, 1),
        (1, 3, 3),
        (2, 6, 0),
    ]
    plan = plan_of(text + "exclude:\n  - {tp: [2, 3], zero: [0, 1]}\n")
    assert sorted((p.run().layout.tp, p.run().layout.zero) for p in plan.runs) == [(1, 0), (3, 3), (6, 0)]
    assert reasons(plan) == {"exclude[0]: tp=2|3, zero=0|1 is excluded"}


def test_a_schedule_that_is_included_adds_pipelines_only():
    """Without a pipeline every schedule is the same run."""
    text = BASE + "pp: [1, 2]\npp_schedule: [1f1b]\ninclude: [{pp_schedule: [gpipe]}]\n"
    layouts = [planned.run().layout for planned in plan_of(text).runs]
    assert sorted((layout.pp, layout.pp_schedule) for layout in layouts) == [(1, "1f1b"), (2, "1f1b"), (2, "gpipe")]


def test_derived_sizes_can_be_restricted():
    plan = plan_of(BASE + "tp: auto\ndp: [2, 6]\nmicro_batch_size: [1, 2]\ngrad_accum: [8]\n")
    assert {(p.run().layout.dp, p.run().layout.grad_accum) for p in plan.runs} == {(6, 8)}
    assert "dp_asked: dp=3 is not among the grid's dp" in reasons(plan)


def test_the_same_plan_in_any_order_of_keys_and_values():
    lines = [
        *BASE.splitlines()[1:],
        "models: {small: tiny-4M, a: tiny-1M}",
        "tp: [1, 2]",
        "pp: [1, 2]",
        "zero: [0, 1]",
        "params: {width: [1, 2], optimizer: [sgd, adamw]}",
        "env: {B: ['1'], A: ['2', '3']}",
    ]
    first = plan_of("\n".join(lines))
    shuffled = list(lines)
    for seed in range(8):
        random.Random(seed).shuffle(shuffled)
        assert to_table(plan_of("\n".join(shuffled))).equals(to_table(first))
    turned = (
        "\n".join(lines)
        .replace("tp: [1, 2]", "tp: [2, 1]")
        .replace("{width: [1, 2], optimizer: [sgd, adamw]}", "{optimizer: [adamw, sgd], width: [2, 1]}")
    )
    assert plan_of(turned.replace("{small: tiny-4M, a: tiny-1M}", "{a: tiny-1M, small: tiny-4M}")).runs == first.runs


def test_every_cell_gets_its_best_before_any_its_second():
    text = BASE.replace("nodes: [1]", "nodes: [1, 2]") + "tp: auto\nmicro_batch_size: auto\nrepeats: 2\n"
    runs = plan_of(text).runs
    assert {planned.nodes for planned in runs[:2]} == {1, 2}
    assert {planned.run().repeat for planned in runs[: len(runs) // 2]} == {0}
    assert all(planned.predicted_s > 30 for planned in runs)
    cpu = plan_of(text.replace("h100", "cpu"))
    assert {planned.predicted_s for planned in cpu.runs} == {None}


def test_impossible_batch_offers_near_ones_and_the_tolerance():
    text = "models: [1B]\nnodes: [1, 2]\nsequence_length: 4096\nglobal_batch: 1M\nsite: {gpu: h100, gpus_per_node: 8}\n"
    with pytest.raises(SweepError) as caught:
        plan_of(text)
    (mistake,) = caught.value.mistakes
    assert (mistake.file, mistake.line, mistake.path) == ("grid.yaml", 4, "global_batch")
    assert "no layout has a global batch of 1,000,000 tokens at sequence_length 4,096" in mistake.fact
    assert "1Mi" in mistake.remedy
    tolerance = mistake.remedy.split("global_batch_tolerance: ")[1]
    for way_on in ("global_batch=1Mi", f"global_batch_tolerance={tolerance}"):
        assert plan_of(text, overrides=[way_on]).runs
    for offer in mistake.remedy.removeprefix("near values: ").split("; or ")[0].split(", 1")[0].split(", "):
        assert plan_of(text, overrides=[f"global_batch={offer}"]).runs


def test_impossible_tokens_per_gpu_offers_near_ones():
    text = BASE.replace("global_batch: 3072", "tokens_per_gpu: 500")
    with pytest.raises(SweepError) as caught:
        plan_of(text)
    (mistake,) = caught.value.mistakes
    assert (mistake.line, mistake.path) == (4, "tokens_per_gpu")
    offers = mistake.remedy.removeprefix("near values: ").split("; or ")[0].split(", ")
    assert offers == ["512"]
    assert plan_of(text, overrides=[f"tokens_per_gpu={offers[0]}"]).runs


@pytest.mark.parametrize(
    ("lines", "words", "path"),
    [
        ("params: {optimiser: sgd}", "did you mean optimizer?", "params.optimiser"),
        ("params: {optimizer: lion}", "has no optimizer 'lion'", "params.optimizer"),
        ("params: {fused: 1}", "expected true or false", "params.fused"),
        ("params: {width: wide}", "expected a number", "params.width"),
        ("recompute: [none, partial]", "has no recompute 'partial'", "recompute"),
        ("pp_schedule: 1f1", "did you mean 1f1b?", "pp_schedule"),
        ("include: [{tpp: 3}]", "'tpp' is not an axis", "include[0].tpp"),
        ("include: [{tp: many}]", "'many' is not a value of tp", "include[0].tp"),
        ("include: [{model: large}]", "not among the grid's models", "include[0].model"),
        ("include: [{recompute: some}]", "has no recompute 'some'", "include[0].recompute"),
        ("exclude: [{colour: red}]", "'colour' is not an axis", "exclude[0].colour"),
        ("env: {optimizer: x}", "also the name of an axis", "env.optimizer"),
        ("constraints: ['tp + 1']", "not a condition", "constraints[0]"),
        ("constraints: ['recompute < 3']", "cannot be evaluated", "constraints[0]"),
    ],
)  # fmt: skip
def test_a_request_that_no_plan_can_meet_is_a_mistake_of_the_grid(lines, words, path):
    with pytest.raises(SweepError) as caught:
        plan_of(BASE + lines + "\n")
    (mistake,) = caught.value.mistakes
    assert words in str(mistake)
    assert (mistake.file, mistake.line, mistake.path) == ("grid.yaml", 6, path)


def test_more_nodes_than_the_site_has():
    with pytest.raises(SweepError, match="2 nodes are more than the site's max_nodes 1"):
        plan_of(
            BASE.replace("nodes: [1]", "nodes: [1, 2]").replace("gpus_per_node: 6", "gpus_per_node: 6, max_nodes: 1")
        )


def test_unknown_workload_is_reported_at_its_line():
    with pytest.raises(SweepError) as caught:
        plan_of("workload: transfomer\n" + BASE, workload=None)
    (mistake,) = caught.value.mistakes
    assert (mistake.line, mistake.path) == (1, "workload")
    assert "did you mean transformer?" in mistake.fact


def test_an_axis_that_the_workload_lacks_is_a_reason():
    narrow = Workload(name="narrow", main="x:y", axes=AXES - {"tp", "dtype"}, rules=())
    plan = plan_of(BASE + "tp: [1, 2]\n", narrow)
    assert reasons(plan) == {"tp_not_varied: the workload narrow cannot vary tp: 2 asked, only 1 possible"}


def test_a_workloads_rule_replaces_the_general_one():
    strict = Rule("kv_heads_by_tp", lambda c: c["num_kv_heads"] % c["tp"] != 0, "kv {num_kv_heads} tp {tp}")
    text = BASE.replace("nodes: [1]", "nodes: [2]") + "tp: [4, 12]\ntp_across_nodes: true\n"
    general = plan_of(text)
    own = plan_of(text, Workload(name="own", main="x:y", axes=AXES, rules=(strict,)))
    assert {row["tp"] for row in rejected(general) if any("kv" in reason for reason in row["reasons"])} == {4}
    assert {row["tp"] for row in rejected(own) if "kv_heads_by_tp: kv 6 tp 12" in row["reasons"]} == {12}


def test_duplicate_runs_are_refused():
    grid = parse_grid(BASE, "grid.yaml")
    (product,) = products(grid, grid.site, ANY)
    builder = Builder(grid, grid.site, ANY.name, rules_for(grid, grid.site, ANY))
    for _ in range(2):
        for columns in chunks(product):
            builder.add(product, columns)
    with pytest.raises(SweepError, match="same run_id small-"):
        builder.table()


def test_a_plan_goes_around_through_parquet(tmp_path):
    plan = plan_of(BASE + "tp: auto\npp: auto\nmicro_batch_size: auto\n")
    pq.write_table(to_table(plan), tmp_path / "plan.parquet")
    again = pq.read_table(tmp_path / "plan.parquet")
    assert runs_of(again) == plan.runs
    assert Plan("x", again).run_count == plan.run_count == len(plan.runs)
    assert again.to_pylist() == to_table(plan).to_pylist()
    assert summary(Plan(plan.name, again)) == summary(plan)


def test_runs_are_read_in_their_order_whatever_the_order_of_rows(tmp_path):
    plan = plan_of(BASE + "tp: auto\nmicro_batch_size: auto\n")
    turned = to_table(plan).take(np.random.default_rng(0).permutation(to_table(plan).num_rows))
    assert runs_of(turned) == plan.runs


def test_summary_counts_every_candidate_once_per_cell():
    plan = plan_of(BASE.replace("nodes: [1]", "nodes: [1, 2]") + "tp: auto\npp: auto\nmicro_batch_size: auto\n")
    found = summary(plan)
    assert found["candidates"] == found["runs"] + found["rejected"] == to_table(plan).num_rows
    assert sum(cell["runs"] for cell in found["cells"]) == found["runs"] == len(plan.runs)
    assert sum(cell["rejected"] for cell in found["cells"]) == found["rejected"]
    spent = sum(p.nodes * p.predicted_s for p in plan.runs) / 3600
    assert found["predicted_node_hours"] == pytest.approx(spent, rel=0.05)


def test_a_grid_without_any_run_is_a_plan_all_the_same():
    plan = plan_of(BASE + "constraints: ['tp > 1']\n")
    assert plan.runs == ()
    assert summary(plan)["cells"] == [
        {
            "model": "small",
            "nodes": 1,
            "gpus": 6,
            "runs": 0,
            "rejected": 1,
            "predicted_node_hours": 0.0,
            "predicted_best": None,
        }
    ]


def test_hundred_thousand_candidates_stay_small_and_quick():
    """A million is benchmarks/plan_speed.py; here the memory per candidate, which is what grows."""
    text = "models: [8B]\nnodes: [64]\nsequence_length: 4096\nglobal_batch: 1Mi\nsite: {gpu: h100, gpus_per_node: 8}\n"
    text += "tp: {from: 1, to: 16}\npp: {from: 1, to: 32}\nmicro_batch_size: auto\nzero: auto\nrecompute: auto\n"
    tracemalloc.start()
    table = to_table(plan_of(text))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert table.num_rows == 16 * 32 * 16 * 4 * 3
    assert peak < 1000 * table.num_rows


def refused(batch, sequence=64, micro=7):
    text = BASE.replace("global_batch: 3072", f"global_batch: {batch}").replace("length: 64", f"length: {sequence}")
    with pytest.raises(SweepError) as caught:
        plan_of(text + f"micro_batch_size: {micro}\n")
    return caught.value.mistakes[0].remedy


@pytest.mark.parametrize(
    ("batch", "sequence", "offered"),
    [
        (1_000_000, 64, True),
        (1_200_000, 64, False),  # more than a tenth off
        (1_000_000, 3000, False),  # 2^20 is no whole number of sequences
        (1_500_000, 3000, False),
    ],
)
def test_a_power_of_two_is_offered_where_it_is_near_and_a_whole_batch(batch, sequence, offered):
    assert ("near values: 1Mi," in refused(batch, sequence)) == offered


def test_at_most_ten_reasons_of_a_rule_are_shown():
    plan = plan_of(BASE + "tp: 1\nmicro_batch_size: {from: 1, to: 40, step: 1}\n")
    (batches,) = [entry for entry in summary(plan)["rejected_by_rule"] if entry["rule"] == "batch_equation"]
    assert batches["candidates"] > 20
    assert len(batches["such_as"]) == COMMONEST == 10
