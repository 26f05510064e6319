"""What `import sweep` offers: the few names that scripts and notebooks need, each loaded when it is asked for."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import analysis
import sweep
from tests.support.made_records import made_record, made_run, made_sweep, record_event, write_journal
from tests.support.made_sweeps import made
from tests.support.paths import REPOSITORY

GRID = "name: g\nmodels: [tiny-1M]\nnodes: [1, 2]\nsequence_length: 128\nglobal_batch: 8192\ntp: [1, 2]\n"
SITE = "name: s\ngpus_per_node: 2\ngpu: cpu\n"


def test_every_name_is_there_and_states_what_it_is():
    documented = [getattr(sweep, name) for name in sweep.__all__ if name != "__version__"]
    assert all(thing.__doc__ for thing in documented)
    with pytest.raises(AttributeError, match="no attribute 'lunch'"):
        sweep.lunch  # noqa: B018


def test_every_name_is_on_the_page_of_the_interface():
    page = (REPOSITORY / "docs/reference/python.md").read_text()
    names = [f"sweep.{name}" for name in sweep.__all__ if name != "__version__"]
    names += [f"analysis.{name}" for name in analysis.__all__]
    assert [name for name in names if f"::: {name}\n" not in page] == []


def test_a_plan_and_a_sweep_are_a_line(tmp_path):
    (tmp_path / "grid.yaml").write_text(GRID)
    (tmp_path / "site.yaml").write_text(SITE)
    grid = sweep.load_grid(tmp_path / "grid.yaml", ["nodes=[1]"])
    plan = sweep.plan(grid, sweep.load_site(grid, str(tmp_path / "site.yaml")))
    assert repr(plan) == f"<plan g: 2 runs of {plan.table.num_rows} candidates>"
    of_grid = sweep.load_grid(tmp_path / "grid.yaml", ["site={gpu: cpu, gpus_per_node: 2}"])
    assert len(sweep.plan(of_grid).runs) == 4
    found = made(tmp_path / "s")
    assert (
        repr(found)
        == f"<sweep {found.grid.name} in {tmp_path / 's'}: {len(found.runs)} runs: {len(found.runs)} waiting>"
    )


def test_importing_it_loads_nothing():
    code = "import sys, sweep; sys.exit(any(m.startswith('sweep.') for m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_notebook_draws_by_name(tmp_path: Path):
    directory = made_sweep(tmp_path / "s")
    write_journal(directory, "one", [record_event(made_record(made_run(dp=2)))])
    records = sweep.read_records(tmp_path / "s")
    drawn = analysis.figures.draw("scaling", records)
    assert "Throughput against nodes" in " ".join(text.get_text() for text in drawn.figure.texts)
    assert drawn.lacking is None
    best = sweep.best(tmp_path / "s")
    assert best[["model", "dp", "confidence"]].to_numpy().tolist() == [
        ["1B", 2, "the only configuration that was measured here"]
    ]
    with pytest.raises(sweep.SweepError, match="did you mean scaling"):
        analysis.figures.draw("scalling", records)
    write_journal(directory, "two", [record_event(made_record(made_run(dp=1, tp=2)))])
    assert list(sweep.read_records(str(tmp_path / "s"))["outcome"]) == ["ok", "ok"]
    assert len(sweep.read_records(tmp_path / "s" / "results.parquet")) == 2, "as sweep.best takes one"


@pytest.mark.parametrize("package", ["sweep", "analysis", "analysis.figures", "analysis.report"])
def test_completion_lists_public_names_only(package):
    """`analysis.figures.<TAB>` listed the modules that it imports."""
    module = importlib.import_module(package)
    beyond = {"figures", "report"} if package == "analysis" else set()
    assert set(dir(module)) == set(module.__all__) | beyond
    assert all(getattr(module, name) is not None for name in dir(module))


SIMULATED = GRID.replace("nodes: [1, 2]", "nodes: [1]") + "workload: simulated\nparams: {step_s: 0.01}\niterations: 1\n"


def test_a_sweep_by_functions_alone_prints_nothing(tmp_path: Path, capfd):
    (tmp_path / "grid.yaml").write_text(SIMULATED + "site: {gpu: cpu, gpus_per_node: 2}\n")
    grid, steps, estimates = sweep.load_grid(tmp_path / "grid.yaml"), [], []
    launched = sweep.launch(
        grid, directory=tmp_path / "s", executor="local", on_step=steps.append, approve=estimates.append
    )
    assert (launched.counts, launched.ended, launched.failures) == ({"ok": launched.runs}, True, {})
    assert launched.heatmap is not None
    assert launched.heatmap.is_file()
    assert steps[-1].at_rest
    assert estimates[0].runs <= launched.runs
    assert sweep.resume(tmp_path / "s").counts == launched.counts
    assert sweep.cancel(tmp_path / "s").nothing == "every run of the sweep has ended"
    assert sweep.status(tmp_path / "s").tally.total == launched.runs
    assert sweep.collect(tmp_path / "s").outcomes == launched.counts
    assert capfd.readouterr() == ("", "")
    with pytest.raises(ZeroDivisionError):
        sweep.launch(grid, directory=tmp_path / "t", executor="local", approve=lambda _: 1 / 0)
    assert not (tmp_path / "t").exists(), "nothing is written before it is approved"
