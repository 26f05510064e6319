"""Loading, filters, the best of each cell, ties, and why a cell is blank."""

import math

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.derive.best import (
    best_per_cell,
    cells,
    completed,
    explain_blanks,
    in_order,
    measured,
    model_order,
    on_cpu,
    trimmed,
)
from analysis.derive.confidence import verdict
from analysis.metrics import METRICS
from sweep.errors import SweepError
from tests.support import published
from tests.support.made_records import made_grid, playbook_records

RATE = METRICS["tokens_per_second_per_gpu"]


def frame(*rows, **common):
    base = {"model": "1B", "nodes": 1, "outcome": "ok", "peak_memory_bytes": 1, "final": True}
    return pd.DataFrame([base | {"run_id": f"r{at}"} | common | row for at, row in enumerate(rows)])


# The best of each cell


@pytest.mark.parametrize(
    ("metric", "column"),
    [("reported_mfu", "best_by_mfu_row_in_playbook_runs"), ("tokens_per_second_per_gpu", "best_by_tok_s_gpu_row")],
)
def test_the_playbooks_winners(metric, column):
    winners = pd.read_csv(published.table("playbook_heatmap_best.csv")).set_index(["model_label", "nodes"])
    best = best_per_cell(playbook_records(), metric).set_index(["model", "nodes"])
    assert len(winners) == 14
    for cell, row in winners.iterrows():
        assert best.loc[cell, "run_id"] == f"row-{row[column]}", cell
        if metric == "reported_mfu":
            assert best.loc[cell, "value"] * 100 == pytest.approx(row["mfu_pct"], abs=0.005)
            assert best.loc[cell, "peak_memory_bytes"] / 2**30 == pytest.approx(row["mem_gib"], abs=0.005)
            for name in ("dp", "tp", "pp", "grad_accum", "micro_batch_size"):
                assert best.loc[cell, name] == row[name]


def test_the_best_is_the_highest_rate_or_the_lowest_time():
    rows = frame(
        {"tokens_per_second_per_gpu": 5.0, "step_time_median_s": 2.0, "peak_memory_bytes": 9},
        {"tokens_per_second_per_gpu": 7.0, "step_time_median_s": 3.0, "peak_memory_bytes": 8},
    )
    winners = {m: best_per_cell(rows, m)["run_id"].item() for m in METRICS if m in rows or "gpu_hours" in m}
    assert winners == {
        "tokens_per_second_per_gpu": "r1",
        "step_time_median_s": "r0",
        "peak_memory_bytes": "r1",
        "gpu_hours_per_billion_tokens": "r1",
    }
    hours = best_per_cell(rows, "gpu_hours_per_billion_tokens")["value"].item()
    assert hours == pytest.approx(1e9 / 7 / 3600)


def test_of_equal_values_the_one_with_less_memory_wins():
    rows = frame(
        {"tokens_per_second_per_gpu": 5.0, "peak_memory_bytes": 9},
        {"tokens_per_second_per_gpu": 5.0, "peak_memory_bytes": 8},
    )
    best = best_per_cell(rows)
    assert best["run_id"].item() == "r1"
    assert best["ties"].item() == ["r0"]


def test_only_ok_and_final_attempts_count():
    rows = frame(
        {"tokens_per_second_per_gpu": 9.0, "outcome": "oom_cuda"},
        {"tokens_per_second_per_gpu": 8.0, "final": False},
        {"tokens_per_second_per_gpu": math.nan},
        {"tokens_per_second_per_gpu": math.inf},
        {"tokens_per_second_per_gpu": 5.0},
    )
    best = best_per_cell(rows)
    assert (best["run_id"].item(), best["configurations"].item()) == ("r4", 1)
    assert math.isnan(best["runner_up"].item())


def timed(rate, fast, slow, **more):
    return {
        "tokens_per_second_per_gpu": rate,
        "step_time_median_s": 1.0,
        "step_time_min_s": fast,
        "step_time_max_s": slow,
        **more,
    }


def test_overlapping_intervals_are_ties_and_others_are_not():
    rows = frame(timed(100, 0.99, 1.02), timed(98.5, 0.98, 1.01), timed(97, 0.999, 1.001), timed(50, 0.9, 1.1))
    best = best_per_cell(rows)
    assert best["ties"].item() == ["r1"]
    assert best["low"].item() == pytest.approx(100 / 1.02)
    assert best["high"].item() == pytest.approx(100 / 0.99)
    assert best["runner_up"].item() == 98.5


@pytest.mark.parametrize(("end", "tied"), [(1.0, True), (0.99, False)])
def test_intervals_that_touch_are_a_tie(end, tied):
    """Rates of 100 and 50, of 1.0 s: what half a second would have been is the other's slowest."""
    rows = frame(timed(100, 1.0, 2.0), timed(50 * end, 1.0, 1.0))
    assert bool(best_per_cell(rows)["ties"].item()) is tied
    times = frame(timed(1, 1.0, 2.0), timed(1, 2.0, 3.0, step_time_median_s=3.0))
    assert best_per_cell(times, "step_time_median_s")["ties"].item() == ["r1"]
    apart = frame(timed(1, 1.0, 2.0), timed(1, 2.01, 3.0, step_time_median_s=3.0))
    assert best_per_cell(apart, "step_time_median_s")["ties"].item() == []


def test_one_disturbed_iteration_of_many_does_not_make_everything_a_tie():
    quiet = [1.0 + 0.001 * k for k in range(-5, 5)]
    rows = frame(timed(100, 0.995, 9.0, step_times_s=[*quiet, 9.0]), timed(90, 0.995, 1.004, step_times_s=quiet))
    assert best_per_cell(rows)["ties"].item() == []
    assert best_per_cell(rows.drop(columns="step_times_s"))["ties"].item() == ["r1"]


@pytest.mark.parametrize("n", [5, 6, 7, 8, 9, 12, 20, 50, 100, 200, 201, 400, 1001])
def test_the_order_statistics_cover_the_median(n):
    """The largest skip with 1 - 2 P(X <= skip) >= 0.9; of over 200 an approximation leaves out one fewer at most."""
    tail, exact = 2.0 ** (1 - n), 0
    while (tail := tail + math.comb(n, exact + 1) * 2.0 ** (1 - n)) <= 0.1:
        exact += 1
    skip = trimmed(n)
    assert exact - (n > 200) <= skip <= exact
    times = [1.0 + k / n for k in range(n)]
    row = timed(100, times[0], times[-1], step_times_s=times, step_time_median_s=times[n // 2])
    (best,) = best_per_cell(frame(row)).to_dict("records")
    ends = [100 * times[n // 2] / times[at] for at in (-1 - skip, skip)]
    assert [best["low"], best["high"]] == pytest.approx(ends)


def test_repeats_of_one_configuration_are_pooled():
    rows = frame(
        timed(100, 0.99, 1.01, repeat=0, tp=1),
        timed(80, 0.99, 1.01, repeat=1, tp=1),
        timed(82, 0.99, 1.01, repeat=2, tp=1),
        timed(90, 0.99, 1.01, repeat=0, tp=2),
    )
    pooled = measured(rows.assign(workload="w"), RATE)
    assert sorted(zip(pooled["tp"], pooled["value"], pooled["repeats"], strict=True)) == [(1, 82, 3), (2, 90, 1)]
    best = best_per_cell(rows)
    assert (best["run_id"].item(), best["configurations"].item()) == ("r3", 2)
    assert best["ties"].item() == ["r2"]


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([1, 2, 4]), st.floats(1, 1e6)), min_size=1, max_size=40))
def test_the_best_of_each_cell_against_a_plain_loop(made):
    rows = frame(*({"model": f"m{m}", "nodes": n, "tokens_per_second_per_gpu": v} for m, n, v in made))
    expected = {}
    for m, n, value in made:
        expected[f"m{m}", n] = max(value, expected.get((f"m{m}", n), 0.0))
    best = best_per_cell(rows)
    assert {(r.model, r.nodes): r.value for r in best.itertuples()} == expected
    assert best["configurations"].sum() == len(made)


# Blank cells


def plan(*candidates):
    rows = [{"model": "1B", "nodes": 1, "run_id": None, "reasons": []} | candidate for candidate in candidates]
    return pd.DataFrame(rows)


def run(run_id, **more):
    return {"status": "run", "run_id": run_id, **more}


def rejected(*reasons, **more):
    return {"status": "rejected", "reasons": list(reasons), **more}


def explained(records, candidates):
    (row,) = explain_blanks(pd.DataFrame({"model": ["1B"], "nodes": [1]}), records, candidates, RATE).to_dict("records")
    return row["status"], row["label"], row["reason"]


NOTHING = pd.DataFrame({"model": [], "nodes": []})

FAILED = [{"outcome": "oom_cuda"}, {"outcome": "oom_host"}, {"outcome": "hang"}]


@pytest.mark.parametrize(
    ("records", "candidates", "expected"),
    [
        (frame(*FAILED[:2]), None, ("failed", "all OOM", "both runs failed: 1 oom_cuda, 1 oom_host")),
        (frame(*FAILED), None, ("failed", "all failed", "all 3 runs failed: 1 oom_cuda, 1 oom_host, 1 hang")),
        (frame(FAILED[2]), None, ("failed", "hang", "the only run failed: hang")),
        (
            frame(FAILED[0]),
            plan(run("r0"), run("r1")),
            ("failed", "OOM", "1 run failed: oom_cuda; 1 run not run yet"),
        ),
        (
            frame({"tokens_per_second_per_gpu": None}),
            None,
            ("unmeasured", "no value", "1 run ok, but without tokens/s/GPU"),
        ),
        (frame({"outcome": "cancelled"}), None, ("unmeasured", "cancelled", "not measured: the only run cancelled")),
        (
            frame({"outcome": "cancelled"}, {"outcome": "cancelled"}),
            plan(run("r0"), run("r1"), run("r2")),
            ("unmeasured", "cancelled", "not measured: 2 runs cancelled; 1 run not run yet"),
        ),
        (
            frame({"outcome": "cancelled"}, {"outcome": "preempted"}),
            None,
            ("unmeasured", "not measured", "not measured: both runs 1 cancelled, 1 preempted"),
        ),
        (
            frame(*FAILED[:2], {"outcome": "cancelled"}),
            None,
            ("failed", "OOM", "2 runs failed: 1 oom_cuda, 1 oom_host; 1 cancelled"),
        ),
        (
            frame(FAILED[0], FAILED[1]),
            plan(run("r0"), run("r1"), run("r2", skipped="strategy")),
            ("failed", "OOM", "2 runs failed: 1 oom_cuda, 1 oom_host; 1 run skipped (strategy)"),
        ),
        (
            frame({"tokens_per_second_per_gpu": None}, {"tokens_per_second_per_gpu": None}, {"outcome": "hang"}),
            plan(run("r0"), run("r1"), run("r2"), run("x"), run("y")),
            ("unmeasured", "no value", "2 runs ok, but without tokens/s/GPU; 2 runs not run yet"),
        ),
        (NOTHING, plan(run("a"), run("b")), ("not_run", "not run", "2 runs not run yet")),
        (
            NOTHING,
            plan(run("a", skipped="strategy"), run("b", skipped="budget"), run("c", skipped=None)),
            ("not_run", "not run", "1 run not run yet; 1 run skipped (budget); 1 run skipped (strategy)"),
        ),
        (
            NOTHING,
            plan(rejected("heads: 4 heads, tp=8"), rejected("heads: 4 heads, tp=3", "pp: 9"), rejected("pp: 7")),
            ("no_layout", "no layout", "no layout works: 3 candidates rejected, most often: 4 heads, tp=8"),
        ),
        (NOTHING, plan(run("a", nodes=2)), ("absent", "–", "the grid has no candidate here")),
        (NOTHING, None, ("absent", "–", "the data has no run here")),
    ],
)  # fmt: skip
def test_a_blank_cell_states_its_reason(records, candidates, expected):
    assert explained(records, candidates) == expected


def test_every_cell_exists_once_in_order_of_size_and_nodes():
    table = cells(frame(timed(5, 1, 1)), plan(run("x", model="80B", nodes=4), rejected("a", nodes=2)))
    assert [(r.model, r.nodes, r.status) for r in table.itertuples()] == [
        ("1B", 1, "best"), ("1B", 2, "no_layout"), ("1B", 4, "absent"),
        ("80B", 1, "absent"), ("80B", 2, "absent"), ("80B", 4, "not_run"),
    ]  # fmt: skip
    assert in_order(table, [("80B", 1), ("1B", 4), ("1B", 1)]) == [("1B", 1), ("1B", 4), ("80B", 1)]


def test_a_filter_applies_to_records_and_plan_and_marks_filtered_cells():
    records = frame(timed(5, 1, 1, zero=0), timed(9, 1, 1, zero=3), timed(7, 1, 1, zero=3, nodes=2))
    candidates = plan(
        run("r0", zero=0), run("x", zero=0, nodes=4), run("y", zero=3, nodes=8), run("z", zero=0, nodes=2)
    )
    table = cells(records, candidates, expression="zero <= 1").set_index("nodes")
    assert table["status"].to_dict() == {1: "best", 2: "filtered", 4: "not_run"}
    assert table.loc[1, "run_id"] == "r0"
    by_result = cells(records, candidates, expression="tokens_per_second_per_gpu > 6").set_index("nodes")
    assert by_result["status"].to_dict() == {1: "best", 2: "best"}
    with pytest.raises(SweepError, match="no record meets"):
        cells(records, candidates, expression="zero == 2")


@pytest.mark.parametrize(("name", "wanted"), [
    ("SmolLM3-3B", 3e9), ("Mixtral-8x7B", math.inf), ("Llama-3.2-1B", 1e9), ("tiny-16M", 16e6), ("Qwen3-0.6B", 0.6e9),
    ("40K", 40e3), ("1T-model", 1e12), ("mine", math.inf), ("8B-A1B", 8e9), ("500M-draft-of-7B", 7e9),
])  # fmt: skip
def test_models_of_unknown_size_are_ordered_by_what_their_name_states(name, wanted):
    others = ["zero-1K", "all-999T"]
    order = model_order(pd.DataFrame({"model": [name]}), [*others, name])
    assert order.index(name) == (2 if math.isinf(wanted) else 1)
    exact = model_order(
        pd.DataFrame({"model": [name]}), [name, f"a-{wanted / 1e9 * 0.999:.12f}B", f"b-{wanted / 1e9 * 1.001:.12f}B"]
    )
    assert math.isinf(wanted) or exact[1] == name


def test_models_are_ordered_by_their_parameters_where_records_state_them():
    made = pd.DataFrame({"model": ["1B", "80B", "mine"], "parameters_total": [9e9, 2e9, 5e9]})
    assert model_order(made, ["1B", "80B", "mine"]) == ["80B", "mine", "1B"]


def test_memory_has_no_ties_since_iterations_do_not_show_its_spread():
    rows = made_grid(2, 2, per_cell=3)
    table = cells(rows.assign(peak_memory_bytes=10.0**9), metric="peak_memory_bytes")
    assert [list(ties) for ties in table["ties"]] == [[]] * len(table)


def test_the_most_frequent_reason_of_rejections_is_quoted_whatever_the_numbers_in_it():
    candidates = plan(rejected("pp: 9 layers"), rejected("memory: 90.5 GiB of 80"), rejected("memory: 101 GiB of 80"))
    wanted = "no layout works: 3 candidates rejected, most often: 90.5 GiB of 80"
    assert explained(NOTHING, candidates) == ("no_layout", "no layout", wanted)
    same_kind = plan(rejected("memory: 90.5 GiB of 80"), rejected("memory: 101 GiB of 80"))
    assert explained(NOTHING, same_kind)[2] == "no layout works: 2 candidates rejected: 90.5 GiB of 80"
    assert explained(NOTHING, plan(rejected()))[2] == "no layout works: 1 candidate rejected"
    assert (
        explained(NOTHING, plan({"status": "rejected", "reasons": None}))[2] == "no layout works: 1 candidate rejected"
    )


def test_a_stopped_run_is_no_winner_no_second_and_no_evidence():
    rows = frame(timed(100, 0.99, 1.01), timed(900, 0.9, 1.1, tp=2, stopped="slow"), timed(90, 0.8, 1.2, tp=4))
    (best,) = best_per_cell(rows).to_dict("records")
    assert (best["run_id"], best["runner_up"], best["configurations"], best["stopped_rivals"]) == ("r0", 90, 3, 1)
    (alone,) = best_per_cell(rows.iloc[:2]).to_dict("records")
    assert math.isnan(alone["runner_up"])
    word, sentence = verdict(alone, RATE)
    assert (word, "the others, 1, had lost and were stopped" in sentence) == ("leads", True)
    again = frame(timed(50, 1, 1, stopped="slow", repeat=0), timed(200, 1, 1, repeat=1))
    assert measured(again, RATE)["value"].tolist() == [200], "measured in full since"


def test_pooled_configurations_are_in_the_order_of_their_first_run():
    rates = [(8, 10), (2, 20), (8, 30), (1, 5), (2, 40)]
    rows = frame(*(timed(rate, 1, 1, tp=tp, repeat=at) for at, (tp, rate) in enumerate(rates)))
    pooled = measured(rows, RATE)
    assert (pooled["tp"].tolist(), pooled.index.tolist(), "index" in pooled) == ([8, 2, 1], [0, 1, 2], False)
    once = frame(*(timed(rate, 1, 1, tp=tp, repeat=None) for tp, rate in rates[:2]))
    assert measured(once, RATE)["repeats"].tolist() == [1, 1], "a run that states no repeat is the first"


@pytest.mark.parametrize(("missing", "intervals"), [
    ("step_time_median_s", [[100, 100], [50, 50]]),
    ("step_time_min_s", [[50, 100], [25, 50]]),
    ("step_time_max_s", [[100, 200], [50, 100]]),
])  # fmt: skip
def test_an_interval_ends_at_the_value_on_the_side_that_is_not_known(missing, intervals):
    rows = frame(timed(100, 0.5, 2.0), timed(50, 0.5, 2.0, tp=2))
    pooled = measured(completed(rows).drop(columns=missing), RATE)
    assert pooled[["low", "high"]].to_numpy().tolist() == intervals


@pytest.mark.parametrize(("column", "values", "others"), [
    ("sequence_length", [2048, 8192], 1), ("sequence_length", [4096, None], 1), ("gpu", ["h100", "a100"], 1),
    ("routing", ["balanced", "skewed:1"], 1), ("routing", ["balanced", "balanced"], 0), ("gpu", [None, None], 0),
])  # fmt: skip
def test_only_configurations_of_the_same_work_on_the_same_gpu_are_rivals(column, values, others):
    """Tokens per second at another sequence length are no rival's; work that no row states is the same."""
    rows = frame(timed(200, 1, 1), timed(100, 1, 1, tp=2)).assign(**{column: pd.Series(values).convert_dtypes()})
    (best,) = best_per_cell(rows).to_dict("records")
    assert (best["configurations"], best["of_other_work"]) == (2 - others, others)
    assert math.isnan(best["runner_up"]) == bool(others)
    alone = ("alone", "the only configuration of its sequence length and GPU that was measured here")
    assert (verdict(best, RATE) == alone) == bool(others)


@pytest.mark.parametrize(("gpus", "cpus"), [(["cpu", None], True), (["cpu", "h100"], False), ([None], False)])
def test_a_table_is_of_cpus_where_no_row_names_another_device(gpus, cpus):
    assert on_cpu(pd.DataFrame({"gpu": gpus})) is cpus
    assert not on_cpu(pd.DataFrame({"run_id": gpus}))
