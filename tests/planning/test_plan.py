"""Plans as a whole: the same in any order, their order, round trips, size, and what is refused."""

import json
import random
import tracemalloc

import pyarrow.parquet as pq
import pytest

from sweep.contract import LAYOUT, Layout
from sweep.errors import SweepError
from sweep.inputs.load import parse_grid
from sweep.planning import build, table
from sweep.planning.build import Builder
from sweep.planning.expand import chunks, products
from sweep.planning.rules import rules_for
from sweep.planning.runs import Plan, PlannedRun, runs_of, runs_of_all, runs_on
from sweep.planning.summary import summary
from tests.support.made_plans import ANY, BASE, plan_of
from tests.support.refusals import mistakes_of


def test_a_run_equals_its_json():
    plan = plan_of(
        BASE + "tp: [1, 2, 3]\npp: auto\ncp: [1, 2]\nep: 1\nrepeats: 2\n"
        "params: {optimizer: [adamw, sgd]}\nenv: {B: [1, '%s']}\n"
    )
    table = plan.table.to_pylist()
    assert len(plan.runs) == len({planned.run_id for planned in plan.runs}) > 20
    assert {planned.repeat for planned in plan.runs} == {0, 1}
    for planned, row in zip(plan.runs, table, strict=False):
        run = planned.run()
        assert run.canonical_json() == planned.run_json
        assert list(json.loads(planned.run_json)) == sorted(json.loads(planned.run_json))
        assert run.run_id == planned.run_id
        assert {**json.loads(planned.configuration), "repeat": run.repeat} == json.loads(planned.run_json)
        assert "repeat" not in json.loads(planned.configuration)
        assert set(run.params) == {"optimizer"}, "no parameter that the grid does not state"
        assert run.gpus == run.layout.gpus
        assert run.global_batch_tokens == row["global_batch_tokens"] == 3072
        assert Layout(**{name: row[name] for name in LAYOUT}, **json.loads(row["further"])) == run.layout
        assert (row["model"], row["nodes"], row["repeat"], row["reasons"]) == (run.model, run.nodes, run.repeat, [])


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
        assert plan_of("\n".join(shuffled)).table.equals(first.table)
    turned = (
        "\n".join(lines)
        .replace("tp: [1, 2]", "tp: [2, 1]")
        .replace("{width: [1, 2], optimizer: [sgd, adamw]}", "{optimizer: [adamw, sgd], width: [2, 1]}")
    )
    assert plan_of(turned.replace("{small: tiny-4M, a: tiny-1M}", "{a: tiny-1M, small: tiny-4M}")).runs == first.runs


@pytest.mark.parametrize(("text", "named"), [(BASE, 1), (BASE + "micro_batch_size: auto\npp: auto\n", 10)])
def test_duplicate_runs_are_refused_and_at_most_ten_are_named(text, named):
    grid = parse_grid(text, "grid.yaml")
    (product,) = products(grid, grid.site, ANY)
    builder = Builder(grid, ANY.name)
    builder.use(grid.site, rules_for(grid, grid.site, ANY))
    for _ in range(2):
        for columns in chunks(product):
            builder.add(product, columns)
    with pytest.raises(SweepError, match="same run_id small-") as caught:
        builder.table()
    assert len(caught.value.mistakes) == named


def test_a_plan_goes_around_through_parquet(tmp_path):
    plan = plan_of(BASE + "tp: auto\npp: auto\nmicro_batch_size: auto\n")
    pq.write_table(plan.table, tmp_path / "plan.parquet")
    again = pq.read_table(tmp_path / "plan.parquet")
    assert runs_of(again) == plan.runs
    assert Plan("x", again).run_count == plan.run_count == len(plan.runs)
    assert again.to_pylist() == plan.table.to_pylist()
    assert summary(Plan(plan.name, again)) == summary(plan)


def test_the_cells_of_a_plan_share_its_texts():
    """With a dictionary of each cell's own, 5,000 cells took over 20 GB."""
    plan = plan_of(BASE.replace("nodes: ", "nodes: [1, 2, 3, 4] # ") + "tp: [1, 5, 7]\n")
    for name in ("status", "model", "reasons"):
        chunks = [chunk.values if name == "reasons" else chunk for chunk in plan.table.column(name).chunks]
        assert len(chunks) > 4
        assert len({chunk.dictionary.buffers()[2].address for chunk in chunks}) == 1, name


def test_hundred_thousand_candidates_stay_small_and_quick():
    """A million is benchmarks/plan_speed.py; here the memory per candidate, which is what grows."""
    text = "models: [8B]\nnodes: [64]\nsequence_length: 4096\nglobal_batch: 1Mi\nsite: {gpu: h100, gpus_per_node: 8}\n"
    text += "tp: {from: 1, to: 16}\npp: {from: 1, to: 32}\nmicro_batch_size: auto\nzero: auto\nrecompute: auto\n"
    tracemalloc.start()
    table = plan_of(text).table
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert table.num_rows == 16 * 32 * 16 * 4 * 3
    assert peak < 1000 * table.num_rows


@pytest.mark.parametrize(
    ("lines", "words", "path"),
    [
        ("params: {optimiser: sgd}", "did you mean optimizer?", "params.optimiser"),
        ("pp_schedule: 1f1", "did you mean 1f1b?", "pp_schedule"),
        ("include: [{tpp: 3}]", "'tpp' is not an axis", "include[0].tpp"),
        ("constraints: ['tp + 1']", "not a condition", "constraints[0]"),
        ("constraints: ['recompute < 3']", "a number is compared with a text", "constraints[0]"),
    ],
)  # fmt: skip
def test_a_request_that_no_plan_can_meet_is_a_mistake_of_the_grid(lines, words, path):
    (mistake,) = mistakes_of(plan_of, BASE + lines + "\n")
    assert words in str(mistake)
    assert (mistake.file, mistake.line, mistake.path) == ("grid.yaml", 6, path)


def test_the_runs_of_several_plans_are_one_after_the_other_and_each_once():
    first, second = (plan_of(BASE + f"tp: {values}\n") for values in ("[1, 2]", "[2, 3, 6]"))
    tables = [first.table, second.table]
    ids = [run.run_id for run in first.runs]
    assert runs_of_all(tables[:1]) == first.runs
    assert runs_of_all(tables) == (*first.runs, *(run for run in second.runs if run.run_id not in ids))
    assert len(runs_of_all(tables)) == 4
    assert runs_of_all([*tables, tables[0]]) == runs_of_all(tables)
    assert runs_of_all([]) == ()


def test_the_runs_of_a_node_group_and_of_a_site_without_any():
    runs = [PlannedRun(f"run-{at}", model, 1, None, "{}") for at, model in enumerate(["a@x", "b@y", "c@x"])]
    assert runs_on(runs, "x") == [runs[0], runs[2]]
    assert runs_on(runs, "y") == [runs[1]]
    assert runs_on(runs, "z") == []
    assert runs_on(runs, "") is runs


def test_a_run_without_a_prediction_is_expected_to_take_a_minute():
    assert PlannedRun("r", "m", 1, None, "{}").expected_s == 60
    assert PlannedRun("r", "m", 1, 95.0, "{}").expected_s == 95


def test_texts_beyond_what_an_arrow_array_can_address_are_refused(monkeypatch):
    monkeypatch.setattr(table, "MOST_TEXT_BYTES", 6)
    assert table.texts(["abc", "", "def"]).to_pylist() == ["abc", "", "def"]
    with pytest.raises(OverflowError, match="2 GiB of text"):
        table.texts(["abc", "é", "de"])


def test_an_extension_has_the_runs_and_the_rejected_that_no_earlier_plan_has():
    first, second = (plan_of(BASE + f"tp: {values}\n").table for values in ("[1, 2, 5]", "[2, 3, 5, 7]"))
    added = table.further(second, [first]).to_pylist()
    assert [(row["status"], row["tp"], row["position"]) for row in added] == [("run", 3, 2), ("rejected", 7, None)]
    again = table.further(second, [first, table.further(second, [first])])
    assert again.num_rows == 0
    assert table.further(second, [second.slice(0, 0)]).column("position").to_pylist() == [0, 1, None, None]


def test_a_plan_may_have_as_many_runs_as_a_plan_may_have(monkeypatch):
    monkeypatch.setattr(build, "MAX_RUNS", 4)
    text = BASE.replace("nodes: [1]", "nodes: [1, 2]")
    assert len(plan_of(text + "repeats: 2\n").runs) == 4
    with pytest.raises(SweepError, match="at most 4 runs; it has 6 or more"):
        plan_of(text + "repeats: 3\n")


@pytest.mark.parametrize(("lines", "said"), [
    ("".join(f"  A{i:02}: {{from: 1, to: 10}}\n" for i in range(15)), "on 1 node has 1,000,000,000,000,000: 10 A00 *"),
    ("".join(f"  A{i:02}: {{from: 1, to: 10}}\n" for i in range(15)) + "  B: [1, 2]\n", "over 10^15: 10 A00 * 10"),
    ("".join(f"  A{i}: {{from: 1, to: 9999}}\n" for i in range(2)), "by cell 1 of it: at most 10,000,000 candidates"),
    ("".join(f"  A{i}: {{from: 1, to: 9999}}\n" for i in range(2)) + "  B: [1, 2]\n", ": 9999 A0 * 9999 A1 * 2 B"),
    ("".join(f"  A{i:02}: {{from: 1, to: 9999}}\n" for i in range(30)), "over 10^15: 9999 A00 * 9999 A01 * 9999 A02"),
    ("  A: 1\nnodes: {from: 1, to: 9999}\ninclude:\n- nodes: {from: 1, to: 9999}\n",
     "by cell 10,001 of it: at most 10,000,000 candidates, each cell counted as 1,000 or more; small on 2 nodes has 1"),
    ("  A: {from: 1, to: 2000}\nrepeats: 1000\n", "at most 500,000 runs; it has 2,000,000 or more"),
])  # fmt: skip
def test_a_plan_that_no_memory_holds_is_one_error_at_once(lines, said):
    """Before any candidate is made: the whole of the first would take 220 TB."""
    text = (
        "\n".join(line for line in BASE.splitlines() if not line.startswith("nodes")) + "\nglobal_batch_tolerance: 0.9"
    )
    with pytest.raises(SweepError, match="this plan is too large") as refused:
        plan_of(f"{text}\n{'' if 'nodes:' in lines else 'nodes: 1'}\nenv:\n{lines}")
    (mistake,) = refused.value.mistakes
    assert said in mistake.fact
    assert "* 1 " not in mistake.fact, "axes of one value"
    assert len(mistake.fact) < 400
    assert "fewer values per axis" in mistake.remedy
