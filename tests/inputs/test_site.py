"""Sites: values read, and mistakes reported for a bad or hostile one."""

import pytest
import yaml

from sweep.errors import SweepError
from sweep.inputs.load import parse_grid
from sweep.inputs.site import Site, parse_site
from sweep.planning.build import build
from sweep.store.create import create
from sweep.store.sweep import open_sweep
from tests.support.made_sweeps import GRID
from tests.support.refusals import mistakes_of

GOOD = "gpus_per_node: 8\ngpu: h100\n"


def mistakes(text):
    return mistakes_of(parse_site, text, "site.yaml")


HOSTILE = [
    '"; rm -rf ~"',
    "{{ 7 * 7 }}",
    "{% raw %}",
    "a\nb",
    "a\n",
    "$(id)",
    "`id`",
    "a b",
    "-x",
    "a'b",
    "",
    "é",
    "x" * 500,
]


@pytest.mark.parametrize("key", ["partition", "account", "qos", "reservation", "constraint", "name", "torch_version"])
@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_values_of_options_are_refused(key, value):
    (found,) = mistakes(GOOD + yaml.safe_dump({key: value}))
    assert found.path == key
    assert found.line == 3


@pytest.mark.parametrize("key", ["max_nodes", "max_pilots", "max_runs_per_pilot", "max_local_ranks", "segment"])
def test_counts_begin_at_one(key):
    assert "expected at least 1, found 0" in str(mistakes(GOOD + f"{key}: 0\n")[0])
    assert getattr(parse_site(GOOD + f"{key}: 1\n", "site.yaml"), key) == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("partitoin: x", "did you mean partition?"),
        ("max_nodes: none", "expected a whole number"),
        ("interface: ib0; reboot", "is not the name of a network interface"),
        ("port_range: 40000-40100", "port_range"),
        ("pilot_time: soon", "is not a duration"),
        ("setup: module load cuda", "expected a list"),
        ("setup: [3]", "expected text"),
        ('setup: ["a\\0b"]', "NUL character"),
        ("env: {A: [1]}", "A must be text or a number"),
        ("env: {A-B: x}", "not a name of an environment variable"),
        ('env: {A: "a\\nb"}', "cannot hold a new line"),
        ("sbatch: [exclude=n1]", "is not an sbatch option"),
        ("sbatch: ['--time=3']", "--time is set by sweep itself"),
        ('sbatch: ["--exclude=n1\\n#SBATCH --wrap=x"]', "is not an sbatch option"),
        ("srun: ['--container-image image.sqsh']", "is not an srun option"),
        ("srun: ['--ntasks=3']", "--ntasks is set by sweep itself"),
        ('container_prefix: ["a\\nb"]', "one line of text"),
        ('container_prefix: ["a\\x1fb"]', "one line of text"),
        ('scratch: "/tmp\\nx"', "one line of text"),
        ("torch_version: 2.13", "expected text"),
    ],
)
def test_each_bad_value_is_reported_once_at_its_line(line, words):
    (found,) = mistakes(GOOD + line + "\n")
    assert words in str(found)
    assert (found.file, found.line) == ("site.yaml", 3)


def test_all_mistakes_at_once():
    found = mistakes("gpu: h101\npartitoin: x\nqos: '{{ }}'\n")
    assert [mistake.line for mistake in found] == [1, 1, 2, 3]
    assert "gpus_per_node is missing" in str(found)


def test_real_slurm_values_are_allowed_and_the_users_own_shell_is_passed_on_unchanged():
    setup = ["module load cuda/12.4", 'export X="{{ not a template }}"', "source ~/venv/bin/activate; echo $HOME"]
    text = GOOD + (
        "partition: gpu-h100,debug\naccount: proj_123\nqos: high.prio\nreservation: maint_2026-11\n"
        "constraint: '[rack1|rack2]&nvme'\nsbatch: ['--exclude=n[1-3]', '--mail-user a@b.c', --contiguous]\n"
    )
    site = parse_site(text + yaml.safe_dump({"setup": setup}), "s")
    assert site.setup == tuple(setup)
    assert site.constraint == "[rack1|rack2]&nvme"
    assert site.sbatch == ("--exclude=n[1-3]", "--mail-user a@b.c", "--contiguous")
    assert site.hardware.peak_flops("bf16") == 989e12


def test_a_part_of_a_site_has_the_sites_values_where_the_group_states_none():
    groups = "node_groups: {a: {}, b: {gpu: a100, max_nodes: 2}}\n"
    text = f"gpu: h100\ngpus_per_node: 8\nmax_nodes: 4\npartition: p\n{groups}"
    site = parse_site(text, "site.yaml")
    a, b = site.part("a"), site.part("b")
    assert (a.gpu, a.max_nodes, a.partition, a.node_groups) == ("h100", 4, "p", {})
    assert (b.gpu, b.max_nodes, b.gpus_per_node) == ("a100", 2, 8)
    assert site.part("unknown") is site


@pytest.mark.parametrize(("text", "fact"), [("a: 1", "of its 1 key, 0 are"), ("a: 1\nb: 2", "of its 2 keys, 0 are")])
def test_another_file_given_as_a_site_is_one_mistake_in_its_first_line(text, fact):
    with pytest.raises(SweepError, match=fact) as caught:
        parse_site(text, "s.yaml")
    assert [mistake.line for mistake in caught.value.mistakes] == [1]


def test_texts_that_look_like_numbers_are_texts_in_a_sweeps_own_site(tmp_path):
    """0189 and 12e5 are texts in YAML 1.1, as PyYAML writes it, and numbers in 1.2, as a site is read."""
    texts = {f"V{at}": text for at, text in enumerate(("0189", "12e5", "010", "no", "1:30", "2026-11-20", "~", ".5"))}
    site = Site(gpu="cpu", gpus_per_node=2, account="0189", partition="12e5", env=texts)
    grid = parse_grid(GRID, "grid.yaml")
    create(tmp_path / "s", grid, site, build(grid, site), executor="local")
    assert open_sweep(tmp_path / "s").site == site
