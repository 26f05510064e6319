"""A grid measured several times: what became worse is found and dated, noise is not, and slow decay is."""

import itertools

import pytest

from analysis.compare.comparison import LEVEL, CellPair, compare
from analysis.compare.history import history
from analysis.compare.noise import Change
from sweep.errors import SweepError
from tests.support.compared import noisy

DAY = 86400.0


def at_day(table, day):
    return table.assign(started_at=1.75e9 + day * DAY)


def named(found):
    return [
        (one.cell.model, one.cell.nodes, found.names[one.earlier], found.names[one.later])
        for one in found.regressions()
    ]


def test_a_cell_that_became_slower_is_dated_whatever_the_order_of_the_arguments():
    tables = [at_day(noisy(1), 1), at_day(noisy(3, slower=("4B", 4)), 15), at_day(noisy(2), 8)]
    found = history(tables, ["first", "third", "second"])
    assert found.names == ("first", "second", "third")
    assert named(found) == [("4B", 4, "second", "third"), ("4B", 4, "first", "third")]
    assert history(tables[:2][::-1], ["third", "first"]).names == ("third", "first"), "two are in the order given"


def test_what_decays_too_slowly_for_any_step_is_found_over_the_whole():
    tables = [at_day(noisy(seed, run=0.004, slower="all", by=by), seed) for seed, by in enumerate((0, 0.012, 0.024))]
    found = history(tables, ["a", "b", "c"])
    assert {one[2:] for one in named(found)} >= {("a", "c")}
    steps = [one for one in named(found) if one[2:] != ("a", "c")]
    assert len(steps) < len([one for one in named(found) if one[2:] == ("a", "c")])


def test_what_was_slow_and_is_mended_is_history():
    found = history([noisy(1), noisy(2, slower="all", by=0.1), noisy(3)], ["a", "b", "c"])
    assert {one[2:] for one in named(found)} == {("a", "b")}


def test_a_cell_that_no_longer_works_is_lost():
    later = noisy(2)
    gone = later["model"].eq("4B") & later["nodes"].eq(4)
    later.loc[gone, "outcome"] = "oom_cuda"
    found = history([noisy(1), later], ["a", "b"])
    (lost,) = found.regressions()
    assert (lost.cell.model, lost.cell.nodes, lost.cell.verdict) == ("4B", 4, "lost")
    assert lost.text(0.01) == "4B on 4: 1 -> 2: no run of it worked in 2"


def test_one_sweep_and_sweeps_of_other_work_are_refused_by_name():
    with pytest.raises(SweepError, match="at least two"):
        history([noisy(1)], ["a"])
    other = noisy(2).assign(sequence_length=4096)
    with pytest.raises(SweepError, match=r"A old, B new.*sequence"):
        history([noisy(1).assign(sequence_length=2048), other], ["old", "new"])


def test_a_regression_is_one_line_with_the_sweeps_counted_from_one():
    found = history([noisy(1), noisy(2), noisy(3, slower=("4B", 4), by=0.2)], ["a", "b", "c"])
    (step,) = [one for one in found.regressions() if (one.earlier, one.later) == (1, 2)]
    assert step.text(found.whole.level) == f"4B on 4: 2 -> 3: {step.cell.best.text()} *"
    assert found.document()["regressions"][0] == {"model": "4B", "nodes": 4, "earlier": 1, "later": 2}


def test_each_sweep_names_what_it_has_otherwise_than_the_one_before():
    tables = [noisy(seed).assign(versions_json=f'{{"torch": "2.{11 + (seed > 1)}"}}') for seed in (1, 2, 3)]
    found = history(tables, ["a", "b", "c"])
    assert [found.changed(at) for at in range(3)] == [(), compare(tables[0], tables[1]).conditions, ()]
    assert found.changed(1)


def test_the_level_is_divided_by_the_number_of_comparisons_and_two_sweeps_have_one():
    tables = [noisy(at).query("model == '1B'") for at in range(3)]
    two, three = (history(tables[:count], list("abc"[:count])) for count in (2, 3))
    assert (two.whole.level, three.whole.level) == (LEVEL, pytest.approx(LEVEL / 3))
    assert two.whole is two.steps[0]
    assert [cell.whole for cell in two.cells()] == [cell.steps[-1] for cell in two.cells()]
    assert [document["whole"] is None for document in (two.document(), three.document())] == [True, False]


def changed(change, p):
    return Change(change=change, low=change - 0.01, high=change + 0.01, p=p)


@pytest.mark.parametrize(
    ("best", "typical", "shown"),
    [
        (changed(0.1, 0.5), changed(-0.2, 0.5), "+10.0% (+9.0 to +11.0)"),
        (changed(0.1, 0.001), changed(-0.2, 0.0001), "+10.0% (+9.0 to +11.0) *"),
        (changed(0.1, 0.5), changed(-0.2, 0.001), "-20.0% (-21.0 to -19.0) *, median of 6 runs"),
        (changed(0.1, 0.5), None, "+10.0% (+9.0 to +11.0)"),
    ],
)
def test_a_cells_change_is_that_of_the_best_which_its_values_show_unless_only_the_median_run_changed(
    best, typical, shown
):
    cell = CellPair(
        model="1B", nodes=1, value_a=100.0, value_b=110.0, best=best, pairs=6, typical=typical, verdict="same"
    )
    assert cell.text(0.01) == shown


def test_a_sweep_began_with_its_first_attempt_and_those_of_which_one_does_not_state_it_are_in_the_order_given():
    tables = [at_day(noisy(at).query("nodes == 1"), day) for at, day in ((1, 9), (2, 5), (3, 1))]
    tables[0] = tables[0].assign(started_at=[*tables[0]["started_at"][:-2] + 1, None, tables[0]["started_at"].iloc[0]])
    tables[1] = tables[1].drop(columns="started_at")
    found = history(tables, ["a", "b", "c"])
    assert found.names == ("a", "b", "c")
    assert found.started_at == (1.75e9 + 9 * DAY, None, 1.75e9 + DAY)


def test_a_cell_has_the_best_value_of_each_sweep_and_none_where_nothing_works():
    tables = [at_day(noisy(at), at).query("nodes <= 2") for at in range(3)]
    for at, model in ((0, "1B"), (0, "4B"), (1, "4B")):  # 4B on 2 is in the last one only
        tables[at] = tables[at][~(tables[at]["model"].eq(model) & tables[at]["nodes"].eq(2))]
    found = history(tables, ["a", "b", "c"])
    rate = "tokens_per_second_per_gpu"
    for cell in found.cells():
        here = [table[table["model"].eq(cell.model) & table["nodes"].eq(cell.nodes)][rate] for table in tables]
        assert list(cell.values) == [values.max() if len(values) else None for values in here]
    order = [(cell.model, cell.nodes) for cell in found.cells()]
    steps = [[(pair.model, pair.nodes) for pair in compare(a, b).cells] for a, b in itertools.pairwise(tables)]
    assert order == steps[1], "a cell that came later has its place too"
    new = next(cell for cell in found.cells() if (cell.model, cell.nodes) == ("1B", 2))
    assert [step and step.verdict for step in new.steps] == [None, "new", new.steps[2].verdict]
