"""The heatmap as an image: nothing cut, nothing overlapping, every number legible; and the command that draws it."""

import re

import numpy as np
import pandas as pd
import pytest
from matplotlib.image import imread

from analysis.heatmap.colours import Scale, ink_on
from analysis.heatmap.draw import draw, save_figure
from analysis.text_fit import shortened, width_pt
from sweep.errors import SweepError
from tests.support.drawn_heatmaps import sound, words
from tests.support.made_records import made_grid, playbook_records

PLAN = pd.DataFrame(
    {
        "model": ["405B-of-a-name-that-goes-on/and-on"] * 3,
        "nodes": [1, 2, 64],
        "status": ["rejected", "run", "rejected"],
        "run_id": [None, "x", None],
        "reasons": [["memory: needs 912 GiB of 80 GiB"], [], ["heads: 30 heads cannot be split over tp=8"]],
    }
)


@pytest.mark.parametrize(
    ("models", "nodes", "changes"),
    [
        (4, 7, {}),
        (12, 12, {}),
        (1, 1, {}),
        (2, 2, {"mfu": None, "gpu": "cpu", "simulated": True}),
        (3, 7, {"suspect": True}),
        (12, 7, {"dp": 1024, "tp": 8, "pp": 16, "cp": 4, "ep": 64, "grad_accum": 1024, "micro_batch_size": 16}),
        (40, 3, {}),
        (3, 16, {}),
    ],
)
def test_nothing_is_cut_overlapping_or_too_small(models, nodes, changes):
    sound(draw(made_grid(models, nodes).assign(**changes), PLAN))


def test_the_playbooks_heatmap_shows_its_numbers():
    drawn = draw(playbook_records(), metric="reported_mfu")
    sound(drawn)
    written = words(drawn)
    for part in (
        "44.3%",
        "41.8\u00a0GiB",
        "DP4 TP1 PP2",
        "MBS4 GAS16",
        "ZeRO1",
        "5.25%",
        "45.2%",
        "nodes (of 8 GPUs each)",
    ):
        assert part in written
    assert "MFU as reported by the source (%)" in written


def test_seven_columns_name_precision_experts_and_schedule():
    """As DeepSeek-V3's recipe on GB300 has them; the second best of each cell has none of it."""
    rows = made_grid(2, 7).assign(dp=128, pp=2, ep=32, pp_schedule="interleaved_1f1b", recompute_modules="mla_up_proj")
    best = rows.groupby(["model", "nodes"])["tokens_per_second_per_gpu"].transform("max")
    first = rows["tokens_per_second_per_gpu"] == best
    values = {"dtype": "mxfp8", "virtual_stages": 8, "dispatcher": "hybridep", "routing": "balanced"}
    values |= {"cuda_graphs": "attn,moe_router,moe_preprocess"}
    plain = {
        "dtype": "bf16",
        "virtual_stages": 4,
        "dispatcher": "alltoall",
        "routing": "natural",
        "cuda_graphs": "none",
    }
    drawn = draw(rows.assign(**{name: np.where(first, values[name], plain[name]) for name in values}))
    sound(drawn)
    written = words(drawn)
    for part in ("MXFP8 VP8", "hybridep", "moe_preprocess", "balanced", "interleaved", "rc:mla_up_proj", "EP32"):
        assert part in written


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_same_records_give_the_same_file_in_the_format_of_its_extension(tmp_path, ending, start):
    one, again = paths = [tmp_path / folder / f"best.{ending}" for folder in ("a", "b")]
    for path in paths:
        save_figure(draw(made_grid(1, 2)).figure, path)
    assert one.read_bytes() == again.read_bytes()
    assert one.read_bytes().startswith(start)
    assert [path.name for path in one.parent.iterdir()] == [one.name]


def test_a_page_wide_png_has_the_pixels_that_print_needs(tmp_path):
    save_figure(draw(made_grid(4, 7)).figure, tmp_path / "best.png")
    height, width = imread(tmp_path / "best.png").shape[:2]
    assert width == 7 * 220
    assert height < 10 * 220


@pytest.mark.parametrize("path", ["best.jpg", "best", "best.PNG.txt"])
def test_other_extensions_are_refused(tmp_path, path):
    with pytest.raises(SweepError, match="unknown picture format"):
        save_figure(draw(made_grid(1, 1)).figure, tmp_path / path)


def test_colour_is_mfu_where_every_cell_has_one_and_else_relative_to_the_models_best():
    with_mfu, without = made_grid(2, 3, failing=False), made_grid(2, 3, failing=False, mfu=None)
    written = words(draw(with_mfu))
    assert "MFU (%)" in written
    drawn = draw(without)
    assert "tokens/s/GPU as % of the model's best" in words(drawn)
    best = drawn.cells.groupby("model")["relative"].max()
    assert best.tolist() == [1.0, 1.0]
    one_is_missing = with_mfu.assign(mfu=with_mfu["mfu"].where(with_mfu["nodes"] > 1))
    assert "as % of the model's best" in words(draw(one_is_missing))


def test_the_title_states_what_was_held_fixed():
    written = words(draw(made_grid(2, 3)))
    for part in (
        "ranked by tokens/s/GPU",
        "sequence 4,096",
        "1.05M tokens per step",
        "bf16",
        "5 iterations",
        "GPU h100",
    ):
        assert part in written
    mixed = made_grid(2, 3)
    mixed.loc[mixed.index % 4 == 3, "global_batch_tokens"] = 2**21
    assert "1.05M to 2.10M tokens per step (all shown: 1.05M)" in words(draw(mixed))


def test_simulated_and_suspect_records_are_marked():
    assert "simulated" not in words(draw(made_grid(1, 2)))
    written = words(draw(made_grid(1, 2, simulated=True)))
    assert "(simulated)" in written
    assert "no model was trained" in written
    marked = words(draw(made_grid(1, 1, suspect=True)))
    assert re.search(r"50\.0% ≈3 !", marked)
    assert "memory ran short in its steps" in " ".join(marked.split())


def test_the_key_names_memory_only_where_some_is_shown():
    rows = made_grid(2, 2)
    assert "peak memory per GPU" in words(draw(rows))
    assert "peak memory" not in words(draw(rows.assign(peak_memory_bytes=np.nan)))


def test_blank_cells_state_their_reason():
    written = words(draw(made_grid(4, 7), PLAN))
    assert "all OOM [" in written
    assert "all 4 runs failed: oom_cuda" in written
    assert "no layout [" in written
    assert "needs 912 GiB of 80 GiB" in written
    assert "not run: planned, no record yet." in written


@pytest.mark.parametrize(
    "face",
    [
        (0.0, 0.0, 0.0, 1.0),
        (1.0, 1.0, 1.0, 1.0),
        (0.27, 0.0, 0.33, 1.0),
        (0.99, 0.9, 0.14, 1.0),
        (0.13, 0.55, 0.55, 1.0),
    ],
)
def test_ink_contrasts_with_every_face(face):
    def luminance(colour):
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
        return float(np.dot(parts, (0.2126, 0.7152, 0.0722)))

    ink = 1.0 if ink_on(face) == "white" else 0.0
    high, low = sorted((luminance(face), ink), reverse=True)
    assert (high + 0.05) / (low + 0.05) >= 4.5


def test_without_success_the_heatmap_shows_reasons():
    drawn = draw(made_grid(2, 3, failing=False).assign(outcome="hang"))
    sound(drawn)
    assert set(drawn.cells["status"]) == {"failed"}
    assert "all 4 runs failed: hang" in words(drawn)


def test_a_plan_alone_is_drawn_as_runs_to_come():
    none = made_grid(1, 1).iloc[:0]
    drawn = draw(none, PLAN)
    sound(drawn)
    assert drawn.cells["status"].tolist() == ["no_layout", "not_run", "no_layout"]


def test_without_data_there_is_a_plain_error():
    with pytest.raises(SweepError, match="nothing to draw"):
        draw(made_grid(1, 1).iloc[:0])
    with pytest.raises(SweepError, match="nothing to draw"):
        draw(made_grid(1, 1).assign(model=None))


def test_missing_columns_and_missing_values_are_tolerated():
    bare = pd.DataFrame(
        {"model": ["a", "b", None], "nodes": [1, 1, 2], "tokens_per_second_per_gpu": [5.0, np.nan, 3.0]}
    )
    drawn = draw(bare)
    sound(drawn)
    assert drawn.cells["status"].tolist() == ["best", "unmeasured"]
    with pytest.raises(SweepError, match="no column nodes"):
        draw(bare.drop(columns="nodes"))


@pytest.mark.parametrize(
    ("level", "models", "nodes", "width_in"),
    [("full", 2, 10, 7), ("brief", 60, 8, 7), ("value", 2, 10, 5), ("none", 2, 10, 4)],
)
def test_cells_show_as_much_as_is_legible(level, models, nodes, width_in):
    drawn = draw(made_grid(models, nodes, failing=False), width_in=width_in)
    sound(drawn)
    written = words(drawn)
    assert ("DP8" in written) == (level == "full")
    assert ("20.0\u00a0GiB" in written) == (level in ("full", "brief"))
    assert ("50.0%" in written) == (level != "none")


def test_a_width_that_is_none_is_refused():
    for width_in in (0, 61):
        with pytest.raises(SweepError, match="no width for a figure"):
            draw(made_grid(1, 1), width_in=width_in)


@pytest.mark.long
def test_two_hundred_models(tmp_path):
    tall = draw(made_grid(200, 12))
    sound(tall)
    save_figure(tall.figure, tmp_path / "tall.png")
    assert max(imread(tmp_path / "tall.png").shape) < 32_000


@pytest.mark.parametrize(
    ("low", "high", "factor", "expected"),
    [
        (0.045, 0.452, 100, ["10", "20", "30", "40"]),
        (6012.0, 7503.0, 1, ["6,500", "7,000", "7,500"]),
        (30_000.0, 40_100.0, 1, ["30k", "32.5k", "35k", "37.5k", "40k"]),
        (0.0, 1.0, 1, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (5.0, 5.0, 1, ["5.00"]),
    ],
)
def test_the_colour_bar_has_round_values_on_its_scale(low, high, factor, expected):
    ticks = Scale(low, high, factor, "x").ticks()
    assert [text for _, text in ticks] == expected
    assert all(low - 1e-9 <= value <= high + 1e-9 for value, _ in ticks)


def on_two_kinds(models=3):
    """Each model on nodes of two kinds, of which the old ones are half as fast and fewer."""
    fast = made_grid(models, 3, failing=False)
    old = made_grid(models, 2, failing=False).assign(gpu="a100")
    old = old.assign(tokens_per_second_per_gpu=old["tokens_per_second_per_gpu"] / 2, run_id="old-" + old["run_id"])
    kinds = [fast.assign(model=fast["model"] + "@h100"), old.assign(model=old["model"] + "@a100")]
    return pd.concat(kinds, ignore_index=True).assign(mfu=None)


def test_kinds_of_nodes_have_a_row_each_on_one_scale():
    sound(draw(on_two_kinds(models=14)))
    drawn = draw(on_two_kinds())
    sound(drawn)
    axes = drawn.figure.axes[0]
    rows = [text.get_text().replace("\n", "") for text in axes.get_yticklabels()]
    assert [row.partition("@")[0] for row in rows] == ["1B", "1B", "4B", "4B", "7B", "7B"]
    assert {row.partition("@")[2] for row in rows} == {"h100", "a100"}
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "2", "4"]
    values = drawn.cells.set_index(["model", "nodes"])["relative"]
    assert values["1B@h100", 1] == pytest.approx(1.0)
    assert values["1B@a100", 1] == pytest.approx(0.5), "against the model's best on any kind"


def test_long_names_of_one_family_keep_the_ends_by_which_they_differ():
    names = [f"an-organisation/a-model-of-a-family-{size}B-Instruct" for size in (1, 3, 8)]
    cut = [shortened(name, 100, 8) for name in names]
    assert len(set(cut)) == 3
    assert all(name.startswith(text.partition("…")[0]) for name, text in zip(names, cut, strict=True))
    assert all(width_pt(text, 8) <= 100 for text in cut)
