"""Where the site comes from, and what this machine may run at once."""

import os

import pytest

from sweep.errors import SweepError
from sweep.inputs.load import (
    choose_executor,
    load_grid,
    load_inputs,
    load_site,
    max_local_ranks,
    parse_grid,
    sites_directory,
)
from sweep.inputs.site import parse_site
from tests.support.refusals import mistakes_of

SITE = "gpus_per_node: 8\ngpu: h100\n"
GRID = "models: [8B]\nnodes: [1]\nsequence_length: 4096\nglobal_batch: 1Mi\n"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A user without sites, on a machine without Slurm and GPUs' tools."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_given_site_counts_before_the_grids_and_that_before_what_is_detected(home):
    (home / "mine.yaml").write_text(SITE.replace("8", "4"))
    inline = parse_grid(GRID + "site: {gpu: a100, gpus_per_node: 2}\n", "grid.yaml")
    assert load_site(inline, str(home / "mine.yaml")).gpus_per_node == 4
    assert load_site(inline).gpus_per_node == 2
    assert load_site(parse_grid(GRID, "grid.yaml")).gpu == "cpu"
    assert load_site(executor="local").name == "local"


def test_a_site_is_named_as_a_file_or_by_its_name_among_the_users(home):
    with pytest.raises(SweepError, match=r"name a file; .* holds no site"):
        load_site(given="big")
    sites_directory().mkdir(parents=True)
    (sites_directory() / "big.yaml").write_text(SITE)
    (home / "plain").write_text(SITE.replace("8", "2"))
    assert load_site(given="big").gpus_per_node == 8
    assert load_site(given="plain").gpus_per_node == 2, "a file that exists counts first"
    with pytest.raises(SweepError, match=r"no site named 'bog' .*known names: big"):
        load_site(given="bog")
    for path in ("bog.yaml", "./bog"):
        with pytest.raises(SweepError, match="no such site file"):
            load_site(given=path)


def test_the_executor_is_the_one_asked_for_else_slurm_where_it_answers(monkeypatch):
    for answers in (False, True):
        monkeypatch.setattr("sweep.inputs.detect.slurm_answers", lambda answers=answers: answers)
        found = [choose_executor(asked) for asked in ("local", "slurm", None)]
        assert found == ["local", "slurm", "slurm" if answers else "local"]


@pytest.mark.parametrize(("cpus", "ranks"), [(None, 8), (1, 8), (4, 8), (5, 10), (64, 128)])
def test_two_ranks_per_core_and_at_least_eight_may_run_here_unless_the_site_states_otherwise(cpus, ranks, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: cpus)
    assert max_local_ranks(parse_site(SITE, "s")) == ranks
    assert max_local_ranks(parse_site(SITE + "max_local_ranks: 3\n", "s")) == 3


def test_mistakes_of_both_files_are_reported_and_a_grid_that_is_wrong_has_no_site(home):
    (home / "grid.yaml").write_text(GRID + "tpp: 1\n")
    (home / "site.yaml").write_text(SITE + "gpuu: 1\n")
    for site, wrong in ((str(home / "site.yaml"), ["tpp", "gpuu"]), (None, ["tpp"])):
        assert [mistake.path for mistake in mistakes_of(load_inputs, home / "grid.yaml", [], site)] == wrong
    (home / "grid.yaml").write_text(GRID)
    (mistake,) = mistakes_of(load_inputs, home / "grid.yaml", [], str(home / "site.yaml"))
    assert mistake.path == "gpuu"
    grid, site = load_inputs(home / "grid.yaml", ["nodes=[2]"], None)
    assert (grid.nodes, site, load_site(executor="local").gpu) == ((2,), None, "cpu")


@pytest.mark.parametrize(("text", "grid"), [
    ("models: 8B\nnodes: 1\na: 1\nb: 2\nc: 3\n", True), ("models: 8B\nname: x\na: 1\nb: 2\n", True),
    ("models: 8B\nname: x\na: 1\nb: 2\nc: 3\n", False), ("a: 1\n", False),
])  # fmt: skip
def test_a_file_is_of_its_kind_where_half_of_its_keys_or_two_of_the_main_ones_are(text, grid):
    assert ("not a grid" not in str(mistakes_of(parse_grid, text, "g.yaml"))) is grid


def test_a_name_that_no_file_system_takes_is_the_users_mistake():
    with pytest.raises(SweepError, match=r"ggg…: file name too long \(name a shorter path\)"):
        load_grid(f"{'g' * 300}.yaml")
