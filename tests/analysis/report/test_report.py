"""The report as text: content, omissions, size, time, and incomplete data."""

import json
import re

import numpy as np
import pandas as pd
import pytest

import analysis
from analysis.metrics import METRICS, metric_named, number
from analysis.report import About, build, columns_needed
from analysis.report.attempts import omission_text, table_of, time_spent
from analysis.report.build import json_for_html
from analysis.report.surroundings import environment_of, how_to_reproduce, rejections_of
from analysis.report.usage import as_grid
from sweep.errors import SweepError
from sweep.inputs.load import parse_grid
from sweep.inputs.site import Site
from sweep.outcomes import Outcome
from sweep.planning.build import build as build_plan
from sweep.planning.runs import runs_of
from sweep.records.collect import write_results
from tests.support import driving
from tests.support.made_records import (
    as_json,
    made_grid,
    made_record,
    made_run,
    made_sweep,
)

ABOUT = About(title="made", sources=["made.parquet"], written="today")
METRIC = metric_named("tokens_per_second_per_gpu")


def text_of(page: str) -> str:
    """What a reader sees, without tags, style and data."""
    body = re.sub(r"<(script|style).*?</\1>", " ", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


def planned(statuses, reasons, skipped=None):
    rows = {"model": "1B", "nodes": 1, "status": statuses, "reasons": reasons, "skipped": skipped}
    names = [f"r{at}" if status == "run" else None for at, status in enumerate(statuses)]
    return pd.DataFrame({**rows, "run_id": names})


def test_candidates_with_several_reasons_are_not_taken_for_more_candidates():
    plan = planned(["rejected"] * 4, [["memory: a", "divides: b"], ["memory: a"], ["divides: c", "memory: d"], None])
    assert rejections_of(plan) == "memory (3), divides (2); several reasons, each counted: 2"
    assert rejections_of(plan[1:2]) == "memory (1)"
    many = planned(["rejected"] * 10, [[f"rule{at}: a"] for at in range(10)])
    assert rejections_of(many).endswith("rule7 (1) and 2 rarer")
    assert rejections_of(planned(["run"], [[]])) == rejections_of(None) == ""
    page = text_of(build(made_grid(1, 1), plan, ABOUT))
    assert "4 candidates of the grid cannot work and were not run: memory (3), divides (2); several reasons" in page


def test_counts_of_the_head_are_of_runs_that_failed_wait_or_were_skipped():
    rows = made_grid(1, 1, per_cell=3, failing=False)
    rows["run_id"] = [f"r{at}" for at in range(len(rows))]
    rows.loc[rows.index[:2], "outcome"] = ["hang", "cancelled"]
    ok = len(rows) - 2
    statuses = ["run"] * (len(rows) + 3)
    skipped = [None] * (len(rows) + 1) + ["strategy"] * 2
    page = text_of(build(rows, planned(statuses, [[]] * len(statuses), skipped), ABOUT))
    assert f"runs ok {ok} runs failed 1 not measured yet 2 runs skipped 2" in page


def test_the_result_is_that_of_best_per_cell():
    rows = made_grid(3, 4)
    page = build(rows, None, ABOUT)
    best = analysis.best_per_cell(rows)
    shown = re.findall(r'<tr id="cell-\d+"><th scope="row">(.*?)</th><td class="n" data-label="nodes">(\d+)</td>', page)
    assert sorted(shown) == sorted((str(m), str(n)) for m, n in zip(best["model"], best["nodes"], strict=True))
    assert all(f"<code>{run_id}</code>" in page for run_id in best["run_id"])


def test_it_states_whether_the_best_is_beyond_noise_and_names_the_ties():
    page = build(made_grid(1, 1, per_cell=3).assign(tokens_per_second_per_gpu=[100.0, 99.9, 80.0]), None, ABOUT)
    assert "within noise of one other configuration; 0.1% ahead of the second" in page
    assert "<li><code>r0-0-1</code></li>" in page


def test_failures_are_listed_by_kind_with_evidence_and_cost():
    rows = made_grid(1, 2).assign(total_s=90.0)
    failed = rows.assign(
        run_id=[f"x{i}" for i in range(8)],
        outcome=["oom_cuda"] * 6 + ["hang"] * 2,
        message=[f"needs {i} GiB" for i in range(6)] + ["no heartbeat"] * 2,
        evidence="CUDA out of memory",
        advice="a smaller micro-batch",
    )
    text = text_of(build(pd.concat([rows, failed], ignore_index=True), None, ABOUT))
    hours = 90 * (8 * 4 + 16 * 2) / 3600
    assert f"oom_cuda: 6 attempts, {number(hours)} GPU-hours" in text
    assert "6 × needs 0 GiB ( 1B on 1, 2 nodes)".replace("( ", "(") in text
    assert text.index("oom_cuda: 6") < text.index("hang: 2")
    assert "CUDA out of memory" in text
    assert "Try: a smaller micro-batch" in text


def test_no_secret_is_in_the_command_that_reproduces_a_sweep():
    launched = ["sweep", "launch", "g.yaml", "-o", "env.HF_TOKEN=abc", "-o", "tp=[1, 2]"]
    (line,) = how_to_reproduce({"grid": "models: [1B]\n", "executor": "slurm", "argv": launched})
    assert "abc" not in line
    assert "-o 'tp=[1, 2]'" in line


def test_mixed_environments_are_pointed_out():
    rows = made_grid(1, 1).assign(versions_json=['{"torch": "2.11", "nccl": "2.27"}'] * 3 + ['{"torch": "2.13"}'])
    assert {("torch", "2.11 (3), 2.13 (1)", True), ("nccl", "2.27", False)} <= set(environment_of(rows, {}))


def test_a_winners_grid_plans_that_run_and_no_other():
    run = made_run(dp=2, tp=2, pp=1, grad_accum=4, micro_batch_size=2, zero=1, gpus_per_node=4, dtype="fp32")
    records = pd.DataFrame([as_json(made_record(run))])
    page = build(records, None, ABOUT)
    text = as_grid(records.iloc[0].to_dict())
    plan = build_plan(parse_grid(text, "again.yaml"), Site(gpus_per_node=4, gpu="cpu"))
    (again,) = runs_of(plan.table)
    assert again.run().layout == run.layout
    assert again.run().shape.items() >= run.shape.items()
    assert "grid that measures it again" in page


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("no success", made_grid(2, 2).assign(outcome="hang", tokens_per_second_per_gpu=None, mfu=None)),
        ("one row", made_grid(1, 1, per_cell=1)),
        ("nan", made_grid(2, 2).assign(tokens_per_second_per_gpu=np.nan, peak_memory_bytes=None)),
        ("missing columns", made_grid(2, 2)[["model", "nodes", "tokens_per_second_per_gpu"]]),
        ("all null", made_grid(1, 1).assign(**dict.fromkeys(["outcome", "run_id", "dp", "gpus", "notes"]))),
        ("infinite", made_grid(1, 2).assign(mfu=np.inf)),
    ],
)
def test_incomplete_data_still_give_a_page(name, rows):
    page = build(rows, None, ABOUT)
    assert page.rstrip().endswith("</html>")
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert data["attempts"]["total"] == len(rows)
    if name in ("no success", "nan"):
        assert "No run has been measured successfully" in page


def test_no_data_are_refused():
    with pytest.raises(SweepError, match="nothing to report"):
        build(made_grid(1, 1).iloc[:0], None, ABOUT)


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_makes_a_page(metric):
    known = {"hfu": 0.5, "reported_mfu": 0.4, "tflops_per_gpu": 300.0, "energy_j_per_token": 0.1}
    rows = made_grid(2, 2).assign(**known, dollars_per_gpu_hour=2.0, co2_g_per_kwh=50.0)
    assert metric_named(metric).label in text_of(build(rows, None, ABOUT, metric=metric))


def test_data_cannot_leave_their_element():
    hostile = {"a": "</script><!--<script>&\u2028"}
    text = json_for_html(hostile)
    assert not re.search("[<>&\u2028]", text)
    assert json.loads(text) == hostile


def test_five_thousand_runs_stay_under_five_megabytes():
    rows = made_grid(10, 10, per_cell=50).assign(
        message="a message of a usual length, some eighty characters or so in all"
    )
    rows["run_id"] = [f"{i:05}-8B-n16-dp16-tp2-pp4-mbs1-gas16-z1-293dd56ade92cded" for i in range(len(rows))]
    assert 4000 < len(rows) <= 5000
    page = build(rows, None, ABOUT)
    assert len(page.encode()) < 2e6, "leaves 3 MB for figures"


def test_a_capped_table_keeps_each_best_and_each_kind_of_failure_and_says_so():
    rows = pd.concat([made_grid(3, 1, per_cell=50), made_grid(1, 1, per_cell=1).assign(outcome="hang")])
    table = table_of(rows.reset_index(drop=True), METRIC, most=5)
    levels = {column["name"]: set(column.get("levels", ())) for column in table["columns"]}
    assert levels["outcome"] == {"ok", "hang"}
    assert {"r0-0-0", "r1-0-0", "r2-0-0"} <= levels["run_id"]
    assert omission_text(table).startswith("5 of 151 attempts are in this table: ")


def test_the_command_writes_the_page_of_a_file(tmp_path):
    write_results(tmp_path / "results.parquet", [made_record(), made_record(made_run(zero=1), outcome=Outcome.HANG)])
    done = driving.succeeds("report", tmp_path / "results.parquet", "--json")
    printed = json.loads(done.stdout)
    page = (tmp_path / "report.html").read_text()
    assert printed == {"path": str(tmp_path / "report.html"), "attempts": 2, "bytes": len(page.encode())}
    assert 'src="data:image/' in page
    assert not re.search(r'(src|href)="(?!data:|#)', page), "no external link"
    wrong = driving.run("report", tmp_path / "none")
    assert wrong.returncode == 2


def test_half_a_character_that_a_file_states_is_shown_as_its_escape(tmp_path):
    sweep = made_sweep(tmp_path / "s")
    write_results(sweep.results, [made_record()])
    sweep.provenance.write_text(json.dumps({"host": "\ud800"}))
    driving.succeeds("report", tmp_path / "s", "--no-figures")
    assert "\\ud800" in (tmp_path / "s" / "report.html").read_text()


def test_columns_needed_are_enough(tmp_path):
    write_results(tmp_path / "r.parquet", [made_record()])
    whole, lean = analysis.load(tmp_path / "r.parquet"), analysis.load(tmp_path / "r.parquet", columns_needed())
    assert build(whole, None, ABOUT) == build(lean, None, ABOUT)


def test_a_plan_without_records_makes_a_page_that_waits(tmp_path):
    write_results(tmp_path / "results.parquet", [])
    records = analysis.load(tmp_path / "results.parquet", columns_needed())
    plan = pd.DataFrame({"model": ["1B", "1B"], "nodes": [1, 2], "status": ["run", "rejected"], "run_id": ["a", None]})
    plan["reasons"] = [[], ["memory: needs 90 GiB of 80"]]
    text = text_of(build(records, plan, ABOUT))
    assert "No run has been measured successfully" in text
    assert re.search(r"not measured yet\s+1 ", text)
    assert "1 candidate of the grid cannot work and were not run: memory (1)" in text.replace("  ", " ")


def test_a_figure_is_the_same_small_png_each_time_with_its_axes_in_words():
    from matplotlib.figure import Figure

    from analysis.figures import Drawn
    from analysis.report.build import alternative, data_uri

    figure = Figure()
    figure.add_subplot(xlabel="memory (GiB)", ylabel="MFU (%)").plot(range(20_000), range(20_000), "o")
    assert data_uri(figure).startswith("data:image/png;base64,")
    assert len(data_uri(figure)) < 100_000
    assert data_uri(figure) == data_uri(figure), "the same figure gives the same page"
    assert alternative(Drawn("f", "A caption.", figure, None)) == "A caption. (MFU (%) against memory (GiB))"
    assert alternative(Drawn("f", "A caption.", Figure(), None)) == "A caption."


def test_a_figure_without_data_is_replaced_by_text():
    from analysis.figures import FIGURES, draw

    rows = made_grid(1, 2)
    pictures = [draw(name, rows) for name in (*[*FIGURES][:3], "job")]
    page = build(rows, None, ABOUT, pictures=pictures)
    lacking = [picture for picture in pictures if picture.lacking]
    assert {picture.name for picture in lacking} >= {"job"}
    assert page.count("<img ") == len(pictures) - len(lacking) > 0
    assert all(picture.lacking.partition("'")[0] in page for picture in lacking)


@pytest.mark.parametrize("suspect", [True, False])
def test_a_winner_with_a_note_is_suspect_only_where_its_record_is(suspect):
    records = made_grid(1, 1, per_cell=1).assign(notes=[["a note"]], suspect=suspect)
    page = text_of(build(records, None, ABOUT))
    assert "a note" in page
    assert ("suspect: a note" in page) is suspect


@pytest.mark.parametrize(("columns", "cost"), [
    # A clock that was set back between an attempt's start and end: its time is unknown, and not subtracted
    ({"total_s": [-1.0], "gpus": [1]}, None),
    ({"total_s": [-7200.0, 3600.0], "gpus": [8, 8]}, ("GPU-hours", 8.0)),
    # One that ended at once cost nothing
    ({"total_s": [0.0, None], "gpus": [8, 8]}, ("GPU-minutes", 0.0)),
    ({"total_s": [3564.0], "gpus": [1]}, ("GPU-minutes", 59.4)),
    ({"total_s": [3600.0], "gpus": [1]}, ("GPU-hours", 1.0)),
    ({"total_s": [1800.0, 1800.0], "gpus": [1, 1], "gpu": ["cpu", "cpu"]}, ("rank-hours", 1.0)),
    ({"total_s": [1800.0, 1800.0], "gpus": [1, 1], "gpu": ["cpu", "h100"]}, ("GPU-hours", 1.0)),
])  # fmt: skip
def test_the_time_of_attempts_on_their_gpus_is_in_hours_or_minutes_of_gpus_or_ranks(columns, cost):
    assert time_spent(pd.DataFrame(columns)) == (cost and (cost[0], pytest.approx(cost[1])))
