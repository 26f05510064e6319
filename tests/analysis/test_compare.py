"""Two sweeps compared: noise is not reported, a slower cell is found, and the statistics are correct."""

import pandas as pd
import pytest

from analysis.compare.comparison import LEVEL, compare
from sweep.errors import SweepError
from sweep.records.schema import OVERSUBSCRIBED
from tests.support.compared import noisy
from tests.support.refusals import mistakes_of


def test_noisy_copies_do_not_differ():
    false = sum(
        bool(found.changed_cells()) + any(run.verdict != "same" for run in found.runs)
        for found in (compare(noisy(seed), noisy(100 + seed)) for seed in range(12))
    )
    assert false <= 1, f"24 families at a level of {LEVEL}"


@pytest.mark.parametrize("seed", range(3))
def test_the_one_slower_cell_is_found(seed):
    found = compare(noisy(seed), noisy(200 + seed, slower=("4B", 4)))
    assert [(cell.model, cell.nodes, cell.verdict) for cell in found.changed_cells()] == [("4B", 4, "worse")]
    (cell,) = found.changed_cells()
    assert cell.typical.low < -0.05 < cell.typical.high
    assert cell.best.change == pytest.approx(cell.value_b / cell.value_a - 1)


def test_a_sweep_that_is_slower_throughout_hides_in_no_median():
    found = compare(noisy(1), noisy(300, slower="all"))
    assert {cell.verdict for cell in found.cells} == {"worse"}


def test_one_run_per_cell_takes_its_noise_from_the_cells():
    found = compare(noisy(1, per_cell=1), noisy(2, per_cell=1, slower=("4B", 4), by=0.15))
    assert found.noise.estimated
    assert [(cell.model, cell.nodes, cell.verdict) for cell in found.changed_cells()] == [("4B", 4, "worse")]


def test_a_single_pair_is_tested_by_assumed_noise():
    rows = noisy(1).query("model == '1B' and nodes == 1 and tp == 1").iloc[:1]
    slightly = rows.assign(tokens_per_second_per_gpu=rows["tokens_per_second_per_gpu"] * 0.985)
    much = rows.assign(tokens_per_second_per_gpu=rows["tokens_per_second_per_gpu"] * 0.9)
    assert not compare(rows, slightly).noise.estimated
    assert not compare(rows, slightly).changed_cells()
    assert compare(rows, much).changed_cells()


def test_better_is_a_higher_rate_and_a_shorter_time():
    slow, fast = noisy(1, slower=("1B", 1)), noisy(5)
    for a, b, verdict in ((slow, fast, "better"), (fast, slow, "worse")):
        for metric in ("tokens_per_second_per_gpu", "step_time_median_s"):
            found = compare(a, b, metric=metric)
            assert [(c.model, c.nodes, c.verdict) for c in found.changed_cells()] == [("1B", 1, verdict)]


def test_cells_lost_missing_and_new():
    a, b = ended("oom_cuda", message="no room")
    b = b[~(b["model"].eq("1B") & b["nodes"].eq(4))]
    a = a[~(a["model"].eq("4B") & a["nodes"].eq(8))]
    found = compare(a, b)
    verdicts = {(cell.model, cell.nodes): cell.verdict for cell in found.cells}
    assert verdicts["1B", 2] == "lost"
    assert verdicts["1B", 4] == "missing"
    assert verdicts["4B", 8] == "new"
    assert {(run.outcome, run.message, run.stopped) for run in found.lost} == {("oom_cuda", "no room", False)}
    assert len(found.lost) == 4
    assert [(cell.model, cell.nodes) for cell in found.changed_cells()] == [("1B", 2)]


def test_a_metric_that_a_sweep_does_not_have_is_named_with_those_that_both_have():
    a, b = noisy(1), noisy(2)
    (mistake,) = mistakes_of(compare, a.assign(energy_j_per_token=0.5), b, metric="energy_j_per_token")
    assert mistake.fact == "no run of B has energy of the GPUs (J/token)"
    assert "tokens_per_second_per_gpu" in mistake.remedy
    assert "energy" not in mistake.remedy
    with pytest.raises(SweepError, match="no run of A and of B has energy"):
        compare(a, b, metric="energy_j_per_token")
    with pytest.raises(SweepError, match=r"no run of B has tokens/s/GPU \(compare sweeps with runs that are ok"):
        compare(a, b.assign(outcome="hang"))


def ended(outcome, **changes):
    """Two sweeps; in the second the runs of the 1B model on two nodes ended so."""
    b = noisy(2).assign(**changes)
    b.loc[b["model"].eq("1B") & b["nodes"].eq(2), "outcome"] = outcome
    return noisy(1), b


@pytest.mark.parametrize("outcome", ["cancelled", "preempted"])
def test_a_run_that_was_stopped_in_b_did_not_fail_there(outcome):
    found = compare(*ended(outcome, message="by the user"))
    assert [(run.outcome, run.message, run.stopped) for run in found.lost] == [(outcome, "by the user", True)] * 4
    verdicts = {(cell.model, cell.nodes): cell.verdict for cell in found.cells}
    assert verdicts["1B", 2] == "missing", "it was not lost: nothing failed"
    assert found.changed_cells() == []


def test_a_configuration_whose_repeat_was_stopped_has_failed_all_the_same():
    a, b = ended("hang")
    repeat = b[b["outcome"] == "hang"].assign(outcome="cancelled", run_id=lambda rows: rows["run_id"] + "r")
    found = compare(a, pd.concat([b, repeat], ignore_index=True))
    assert [(run.outcome, run.stopped) for run in found.lost] == [("hang", False)] * 4


def test_what_differs_throughout_is_reported_and_does_not_split_the_pairs():
    a = noisy(1).assign(env_json='{"NCCL_ALGO":"Ring"}', versions_json='{"nccl": "2.26"}')
    b = noisy(2).assign(env_json='{"NCCL_ALGO":"Tree"}', versions_json='{"nccl": "2.27"}')
    found = compare(a, b)
    assert len(found.runs) == len(a)
    assert found.conditions == (("env_json", '{"NCCL_ALGO":"Ring"}', '{"NCCL_ALGO":"Tree"}'), ("nccl", "2.26", "2.27"))
    unstated = compare(a.assign(env_json=None), b).conditions
    assert unstated[0] == ("env_json", "not stated", '{"NCCL_ALGO":"Tree"}')
    mixed = b.assign(env_json=["1", "2"] * (len(b) // 2))
    for pair in ((a, mixed), (mixed, a)):
        with pytest.raises(SweepError, match="no run is in both"):
            compare(*pair)


def refused(a, b):
    return [mistake.fact for mistake in mistakes_of(compare, a, b)]


ONE, TWO = "model == '1B' and nodes == 1", "model == '1B' and nodes <= 2"


@pytest.mark.parametrize(("cells", "where"), [
    (ONE, "1B on 1"), (TWO, "1B on 1 and 1 more cells"), ("model == '1B' and nodes <= 4", "1B on 1 and 2 more cells"),
])  # fmt: skip
def test_other_work_in_every_cell_is_refused_with_the_first_cell_the_number_of_others_and_both_values(cells, where):
    a, b = noisy(1).query(cells), noisy(2).query(cells)
    sequence = refused(a.assign(sequence_length=4096), b.assign(sequence_length=8192))
    assert sequence == [f"the sequence of {where} differs: 4096 in A, 8192 in B"]
    shape = refused(a.assign(shape_json='{"layers": 1}'), b.assign(shape_json='{"layers": 2}'))
    assert shape == [f"the model's shape of {where} differs"], "a shape is too long to be quoted"
    mixed = a.assign(sequence_length=[1024 * (1 + place % 4) for place in range(len(a))])
    assert refused(mixed, b.assign(sequence_length=512)) == [
        f"the sequence of {where} differs: 1024, 2048, 3072 in A, 512 in B"
    ]
    by_cell = a.assign(sequence_length=a["nodes"] * 1000)
    assert refused(by_cell, b.assign(sequence_length=8192)) == [
        f"the sequence of {where} differs: 1000 in A, 8192 in B"
    ]


def test_other_work_in_one_cell_is_not_excused_by_equal_work_in_another():
    a = noisy(1).query(TWO).assign(sequence_length=4096)
    b = noisy(2).query(TWO).assign(sequence_length=4096)
    b.loc[b["nodes"] == 2, "sequence_length"] = 8192
    assert refused(a, b) == ["the sequence of 1B on 2 differs: 4096 in A, 8192 in B"]


def test_nothing_in_common_is_refused():
    (fact,) = refused(noisy(1).query("model == '1B'"), noisy(2).query("model == '4B' and nodes == 1"))
    assert fact == "no cell has tokens/s/GPU in both: 4 cells in A, 1 in B"


def test_a_run_that_failed_once_and_was_measured_later_does_not_fail():
    a, b = noisy(1), noisy(2)
    again = b.iloc[:1].assign(outcome="hang", run_id="an earlier attempt")
    assert compare(a, pd.concat([b, again], ignore_index=True)).lost == ()


def test_tables_without_the_columns_of_messages_and_versions_are_compared():
    """Imported tables lack them."""
    a, b = ended("oom_cuda")
    assert not {"message", "versions_json"} & {*a, *b}
    found = compare(a.drop(columns="parameters_total"), b.drop(columns="parameters_total"))
    assert {run.message for run in found.lost} == {""}
    assert found.conditions == ()
    assert {run.message for run in compare(*ended("oom_cuda", message=None)).lost} == {""}, "of a failure without one"


@pytest.mark.parametrize(
    ("metric", "best"), [("tokens_per_second_per_gpu", "max"), ("step_time_median_s", "min"), ("mfu", "max")]
)
def test_a_cells_value_is_its_best_by_the_metric_and_cells_are_in_order_of_size_and_nodes(metric, best):
    a, b = noisy(1), noisy(2)
    cells = compare(a, b, metric=metric).cells
    expected = [frame.groupby(["model", "nodes"])[metric].agg(best).to_dict() for frame in (a, b)]
    assert {(cell.model, cell.nodes): cell.value_a for cell in cells} == pytest.approx(expected[0])
    assert {(cell.model, cell.nodes): cell.value_b for cell in cells} == pytest.approx(expected[1])
    models = [
        model for model, _ in sorted(set(zip(a["model"], a["parameters_total"], strict=True)), key=lambda m: m[1])
    ]
    nodes = sorted(set(a["nodes"]))
    assert [(cell.model, cell.nodes) for cell in cells] == [(model, count) for model in models for count in nodes]


def test_a_run_with_a_rate_of_zero_has_no_value():
    a, b = noisy(1), noisy(2)
    b.loc[b.index[0], "tokens_per_second_per_gpu"] = 0.0
    assert len(compare(a, b).runs) == len(a) - 1


def test_of_a_configuration_that_a_side_has_twice_the_better_run_is_paired():
    """Each side compiles throughout or not, so that this is no part of a run; B has one run without it, slower."""
    a = noisy(1).query("model == '1B' and nodes == 1")
    b = noisy(2).query("model == '1B' and nodes == 1")
    rate = "tokens_per_second_per_gpu"
    slow = b.assign(run_id="slow " + b["run_id"], compile=None, **{rate: b[rate] * 0.5})
    fast = b.assign(compile=False)
    found = compare(a.assign(compile=True), pd.concat([slow, fast]))
    assert {run.run_b for run in found.runs} == set(b["run_id"])


def test_versions_are_reported_where_both_state_them_and_they_differ():
    a = noisy(1).assign(versions_json='{"torch": "2.11", "cuda": "12.8", "python": "3.11", "nccl": null}')
    texts = ('{"torch": "2.11", "cuda": "12.8", "nccl": "2.27"}', '{"torch": "2.11", "cuda": "12.9"}')
    b = noisy(2)
    b = b.assign(versions_json=[texts[at % 2] for at in range(len(b))])
    assert compare(a, b).conditions == (("cuda", "12.8", "12.8, 12.9"),)


def test_each_run_has_both_values_and_its_change_is_their_ratio():
    a, b = noisy(1), noisy(2)
    values = [dict(zip(frame["run_id"], frame["tokens_per_second_per_gpu"], strict=True)) for frame in (a, b)]
    for run in compare(a, b).runs:
        assert (run.value_a, run.value_b) == (values[0][run.run_a], values[1][run.run_b])
        assert run.change.change == pytest.approx(run.value_b / run.value_a - 1)


def test_a_change_on_a_host_with_more_work_than_cores_is_not_clear_as_in_best():
    """`best` calls no lead clear there; a comparison starred the same difference."""
    a, b = noisy(1), noisy(200, slower=("4B", 4), by=0.3)
    disturbed = b.assign(notes=[[OVERSUBSCRIBED] if model == "4B" else [] for model in b["model"]])
    cells = {(cell.model, cell.nodes): cell for cell in compare(a, disturbed).cells}
    cell = cells["4B", 4]
    assert (cell.verdict, cell.changed, "*" in cell.text(LEVEL)) == ("unclear", False, False)
    assert "not clear" in cell.text(LEVEL)
    assert [one.verdict for one in compare(a, b).cells if (one.model, one.nodes) == ("4B", 4)] == ["worse"]
