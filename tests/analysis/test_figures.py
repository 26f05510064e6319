"""The figures: each is drawn from any data, states what is missing, and nothing is cut, overlapping or too small."""

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from analysis import figures
from analysis.figures import style
from sweep.cli.main import cli
from sweep.errors import SweepError
from tests.support import made_sweeps
from tests.support.drawn_heatmaps import no_overlap
from tests.support.made_records import as_json, made_grid, made_record, made_run, playbook_records
from tests.support.paths import REPOSITORY

SMALLEST = 5.4


def written(figure):
    """(text, its box) of everything that can be read, and the figure's box, in pixels."""
    figure.set_dpi(120)
    figure.draw_without_rendering()
    renderer = FigureCanvasAgg(figure).get_renderer()
    shown = [axes for axes in figure.axes if axes.get_visible() and axes.axison]
    texts = [t for a in figure.axes if a not in shown for t in a.texts] + list(figure.texts)
    for axes in shown:
        texts += [t for t in axes.get_children() if isinstance(t, Text)]  # its titles are among them
        texts += [axes.xaxis.label, axes.yaxis.label]
        texts += [t for axis in (axes.xaxis, axes.yaxis) for t in tick_labels(axis)]
        if axes.get_legend() is not None:
            texts += [*axes.get_legend().get_texts(), axes.get_legend().get_title()]
    texts += [t for drawn in figure.legends for t in drawn.get_texts()]
    return [(t, t.get_window_extent(renderer)) for t in texts if t.get_text().strip() and t.get_visible()], figure.bbox


def tick_labels(axis):
    low, high = sorted(axis.get_view_interval())
    ticks = [t for t in axis.get_major_ticks() if low - 1e-9 <= t.get_loc() <= high + 1e-9]
    return [t.label1 for t in ticks if t.label1.get_visible()]


def sound(figure):
    """Nothing leaves the figure, no two texts overlap, nothing is too small. Returns what is written."""
    texts, whole = written(figure)
    for text, box in texts:
        assert min(box.x0, box.y0, whole.x1 - box.x1, whole.y1 - box.y1) >= -1, f"cut: {text.get_text()}"
        assert text.get_fontsize() >= SMALLEST, text.get_text()
    no_overlap(texts)
    return " ".join(text.get_text() for text, _ in texts)


def full(records):
    """Records with every column, as a load gives them."""
    return records.reindex(columns=list(dict.fromkeys([*records.columns, *figures.COLUMNS])))


WROTE = {
    "checkpoint_stall_s": 5.0,
    "checkpoint_slowdown": 0.1,
    "checkpoint_durable_s": 60.0,
    "checkpoint_restore_s": 9.0,
}


def made_records_of(models=3, nodes=5, **changes):
    return full(made_grid(models, nodes, **changes).assign(**WROTE))


def repeats_on_nodes(slow, configurations=2, sets=3, per_set=3):
    """Repeats on pairs of nodes; the pair of n3 and n4, on two switches, has that share of the others' speed."""
    random = np.random.default_rng(1)
    rows = []
    for c in range(configurations):
        for at in range(sets):
            names = [f"n{2 * at + 1}", f"n{2 * at + 2}"]
            leaves = ["leaf1", "leaf2"] if at == 1 else ["leaf1", "leaf1"]
            for r in range(per_set):
                run = made_run(nodes=2, gpus_per_node=2, dp=4, grad_accum=1 + c, repeat=at * per_set + r)
                step_s = 0.1 * float(random.normal(1, 0.002)) / (slow if at == 1 else 1.0)
                record = made_record(run, [step_s] * 3, node_names=names, leaf_switches=leaves)
                rows.append(as_json(record) | {"final": True})
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def measured():
    """Cells with checkpoints, and repeats of a configuration on several sets of nodes."""
    return full(pd.concat([made_grid(2, 3).assign(**WROTE), repeats_on_nodes(slow=0.95)], ignore_index=True))


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    return made_sweeps.measured(tmp_path_factory.mktemp("figures") / "s").directory


def test_every_figure_has_a_caption_of_one_line_and_is_documented():
    captions = [module.__doc__ for module in figures.FIGURES.values()]
    assert all(caption.endswith(".") and "\n" not in caption for caption in captions)
    page = (REPOSITORY / "docs" / "figures.md").read_text()
    assert all(f"| `{name}` | " in page for name in figures.FIGURES)


@pytest.mark.parametrize("name", figures.FIGURES)
def test_a_sweeps_figures_are_whole_and_simulated_data_are_marked(measured, name):
    drawn = figures.draw(name, measured)
    assert drawn.lacking is None
    shown = sound(drawn.figure)
    assert "simulated" not in shown.lower()
    assert "simulated" in sound(figures.draw(name, measured.assign(simulated=True)).figure)
    assert drawn.figure.get_size_inches()[0] == style.WIDTH_IN


@pytest.mark.parametrize("name", [name for name in figures.FIGURES if name != "placement"])
@pytest.mark.parametrize(("models", "nodes"), [(1, 1), (3, 5), pytest.param(12, 12, marks=pytest.mark.long), (40, 6)])
def test_figures_of_few_and_many_models_are_whole(name, models, nodes):
    sound(figures.draw(name, made_records_of(models, nodes)).figure)


DEGENERATE = {
    "nothing": full(pd.DataFrame({"model": [], "nodes": []})),
    "no success": full(made_grid(2, 3).assign(outcome="oom_cuda", tokens_per_second_per_gpu=None, mfu=None)),
    "one row": full(made_grid(1, 1, per_cell=1)),
    "NaN": full(made_grid(2, 3).assign(tokens_per_second_per_gpu=np.nan, mfu=np.nan, step_time_median_s=np.nan)),
    "no columns": made_grid(2, 3)[["model", "nodes", "tokens_per_second_per_gpu", "outcome"]],
    "names that are formulas": full(made_grid(2, 3).assign(model=r"$\frac{a}{$ <b>&", outcome="ok")),
}


@pytest.mark.parametrize("name", figures.FIGURES)
@pytest.mark.parametrize("kind", DEGENERATE)
def test_no_data_break_a_figure(name, kind):
    drawn = figures.draw(name, DEGENERATE[kind])
    shown = sound(drawn.figure)
    if drawn.lacking is not None:
        assert drawn.lacking.split()[0] in shown
    assert drawn.lacking is not None or any(axes.has_data() for axes in drawn.figure.axes)


def test_scaling_shows_the_efficiency_of_the_numbers():
    records = made_grid(1, 4, failing=False)
    drawn = figures.draw("scaling", full(records))
    (line,) = [line for line in drawn.figure.axes[1].get_lines() if line.get_label() == "1B"]
    assert line.get_ydata() == pytest.approx([100 / (1 + 0.08 * n) for n in range(4)])
    assert "strong scaling" in sound(drawn.figure)


def test_a_training_day_has_24_hours():
    records = made_records_of(failing=False).assign(start_s=60.0, first_iteration_s=30.0, restart_time=600.0)
    left, right = figures.draw("job", records).figure.axes
    rows = len(left.get_yticklabels())
    hours = [sum(bar.get_width() for bar in left.patches[at::rows]) for at in range(rows)]
    assert hours == pytest.approx([24.0] * rows)
    assert all(bar.get_width() > 0 for bar in left.patches)
    for at, label in enumerate(right.get_yticklabels()):
        minutes = sum(bar.get_width() for bar in right.patches[at::rows])
        assert label.get_text() == f"{1 - minutes / 24 / 60:.1%} trains"


def test_slow_sets_of_nodes_come_first_and_the_effect_of_the_choice_of_nodes_is_stated():
    records = full(repeats_on_nodes(slow=0.95))
    drawn = figures.draw("placement", records)
    shown = sound(drawn.figure)
    assert "The choice of nodes matters: it adds" in shown
    assert "2 leaf switches" in shown
    assert drawn.figure.axes[1].get_yticklabels()[0].get_text() == "n3, n4 · 6×"
    same = sound(figures.draw("placement", full(repeats_on_nodes(slow=1.0))).figure)
    assert "No effect of the choice of nodes is shown" in same


def test_many_sets_of_nodes_are_legible():
    runs = repeats_on_nodes(slow=0.9, configurations=30, sets=40, per_set=1)
    shown = sound(figures.draw("placement", full(runs.assign(leaf_switches=None))).figure)
    assert "The slowest 16 of 40 sets of nodes" in shown
    assert "leaf switches not known" in shown


def test_the_playbooks_figures(tmp_path):
    records = full(playbook_records())
    for name in ("scaling", "axes"):
        drawn = figures.draw(name, records)
        assert drawn.lacking is None
        sound(drawn.figure)


# The command


def invoke(*arguments):
    return CliRunner().invoke(cli, [str(a) for a in arguments])


def test_all_figures_of_a_sweep_are_drawn(sweep, tmp_path):
    done = invoke("report", sweep.path, "--figures", tmp_path / "all")
    assert done.exit_code == 0, done.output
    assert sorted(p.name for p in (tmp_path / "all").iterdir()) == sorted(f"{name}.png" for name in figures.FIGURES)


def test_named_figures_are_drawn_in_a_format_and_json_states_missing_data(sweep, tmp_path):
    done = invoke("report", sweep.path, "job", "scaling", "--figures", tmp_path / "f", "--format", "svg", "--json")
    assert done.exit_code == 0, done.output
    first, second = json.loads(done.stdout)
    assert "checkpoint" in first["lacking"]
    assert second["lacking"] is None
    assert (tmp_path / "f" / "scaling.svg").read_text().startswith("<?xml")


def test_mistakes_draw_nothing(sweep, tmp_path):
    done = invoke("report", sweep.path, "scalling", "--figures", tmp_path / "f")
    assert "unknown figure 'scalling' (did you mean scaling?)" in str(done.exception)
    assert isinstance(invoke("report", sweep.path, "scaling").exception, SweepError), "the page has all figures"
    for useless in (("--out", "x.html"), ("--metric", "mfu"), ("--no-figures",)):
        done = invoke("report", sweep.path, "--figures", tmp_path / "f", *useless)
        assert f"{useless[0]}: has no effect with --figures" in str(done.exception)
    assert "--format: has no effect without --figures" in str(invoke("report", sweep.path, "--format", "svg").exception)
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize("spread", [1.0, 2.0, 20.0, 100.0])
def test_every_tick_of_a_logarithmic_axis_has_its_number_and_there_are_enough_to_read_it_by(spread):
    rows = made_grid(2, 4)
    rows["tokens_per_second"] *= np.where(rows["model"] == "1B", spread, 1.0)
    rows["tokens_per_second_per_gpu"] *= np.where(rows["model"] == "1B", spread, 1.0)
    figure = figures.draw("scaling", rows).figure
    FigureCanvasAgg(figure).draw()
    axis = figure.axes[0].yaxis
    low, high = sorted(axis.get_view_interval())
    assert axis.get_scale() == "log"
    shown = [tick.label1.get_text() for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    assert len([text for text in shown if text]) == len(shown) >= 3, shown
    assert [tick for tick in axis.get_minorticklocs() if low <= tick <= high] == []
