"""Sites: values read, and mistakes reported for a bad or hostile one."""

import pytest
import yaml

from sweep.errors import SweepError
from sweep.inputs.site import LEAST_PORTS, NodeGroup, parse_site

GOOD = "gpus_per_node: 8\ngpu: h100\n"


def mistakes(text):
    with pytest.raises(SweepError) as caught:
        parse_site(text, "site.yaml")
    return caught.value.mistakes


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


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("partitoin: x", "did you mean partition?"),
        ("max_nodes: none", "expected a whole number"),
        ("interface: ib0; reboot", "is not the name of a network interface"),
        ("interface: an-interface-of-17", "is not the name of a network interface"),
        ("port_range: [40000, 40003]", "are too few ports"),
        ("port_range: [80, 40003]", "expected at least 1024"),
        ("port_range: 40000-40100", "port_range"),
        ("max_nodes: 0", "expected at least 1"),
        ("pilot_time: soon", "is not a duration"),
        ("pilot_time: 0", "not a duration between"),
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
        ("max_pilots: -1", "expected at least 1"),
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


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("4h", 14400),
        ("30m", 1800),
        ("90s", 90),
        ("1h30m", 5400),
        ("2d", 172800),
        ("1-00:00:00", 86400),
        ("02:30:00", 9000),
        ("1-12:00", 129600),
        ("600", 600),
    ],
)
def test_every_form_of_a_duration(text, seconds):
    assert parse_site(GOOD + f"pilot_time: {text}\n", "s").pilot_time_s == seconds


@pytest.mark.parametrize("text", ["30", "4:00", "h", "4 hours", "-3m", "1h-", "1:2:3:4"])
def test_invalid_or_ambiguous_durations(text):
    if text == "30":
        assert parse_site(GOOD + "pilot_time: 30\n", "s").pilot_time_s == 30
        return
    assert "is not a duration" in str(mistakes(GOOD + f"pilot_time: '{text}'\n")[0])


def test_the_users_own_shell_is_passed_on_unchanged():
    setup = ["module load cuda/12.4", 'export X="{{ not a template }}"', "source ~/venv/bin/activate; echo $HOME"]
    assert parse_site(GOOD + yaml.safe_dump({"setup": setup}), "s").setup == tuple(setup)


def test_real_slurm_values_are_allowed():
    text = GOOD + (
        "partition: gpu-h100,debug\naccount: proj_123\nqos: high.prio\nreservation: maint_2026-11\n"
        "constraint: '[rack1|rack2]&nvme'\nsbatch: ['--exclude=n[1-3]', '--mail-user a@b.c', --contiguous]\n"
    )
    site = parse_site(text, "s")
    assert site.constraint == "[rack1|rack2]&nvme"
    assert site.sbatch == ("--exclude=n[1-3]", "--mail-user a@b.c", "--contiguous")
    assert site.hardware.peak_flops("bf16") == 989e12


BOUNDS = [
    ("gpus_per_node", 1, 1024), ("max_nodes", 1, 100_000), ("cpus_per_node", 1, 65536), ("max_pilots", 1, 10_000),
    ("nice", -(2**31), 2**31 - 1), ("max_runs_per_pilot", 1, None), ("max_local_ranks", 1, 65536),
]  # fmt: skip


@pytest.mark.parametrize(("key", "lowest", "highest"), BOUNDS)
def test_a_sites_numbers_have_their_bounds_in_groups_too(key, lowest, highest):
    plain = {"gpu": "h100", "gpus_per_node": 8}
    for value, right in [(lowest, True), (lowest - 1, False)] + (
        [(highest, True), (highest + 1, False)] if highest else []
    ):
        texts = [yaml.safe_dump(plain | {key: value})]
        if key in NodeGroup.model_fields:
            texts.append(yaml.safe_dump(plain | {"node_groups": {"a": {key: value}}}))
        for text in texts:
            if right:
                assert parse_site(text, "site.yaml")
            else:
                with pytest.raises(SweepError, match=key):
                    parse_site(text, "site.yaml")


@pytest.mark.parametrize("key", ["dollars_per_gpu_hour", "co2_g_per_kwh"])
def test_a_price_is_a_finite_number_and_above_nothing_where_it_divides(key):
    def right(value):
        try:
            return bool(parse_site(f"gpu: h100\ngpus_per_node: 8\n{key}: {value}\n", "site.yaml"))
        except SweepError:
            return False

    assert [right(value) for value in ("0.01", "0.0", "-0.5", ".inf", ".nan")] == [
        True, key == "co2_g_per_kwh", False, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(("ports", "right"), [
    ((1024, 65535), True), ((1023, 65535), False), ((1024, 65536), False), ((2000, 2000 + LEAST_PORTS - 1), True),
    ((2000, 2000 + LEAST_PORTS - 2), False),
])  # fmt: skip
def test_a_range_of_ports_is_of_unprivileged_ones_and_wide_enough(ports, right):
    text = f"gpu: h100\ngpus_per_node: 8\nport_range: {list(ports)}\n"
    if right:
        assert parse_site(text, "site.yaml").port_range == ports
    else:
        with pytest.raises(SweepError, match="port"):
            parse_site(text, "site.yaml")


def test_what_a_site_does_not_state_has_its_default():
    site = parse_site("gpu: h100\ngpus_per_node: 8\n", "site.yaml")
    assert (site.pilot_time_s, site.max_pilots, site.poll_interval_s) == (4 * 3600, 4, 15)
    assert site.parts == {"": site}
    assert site.part("any") is site


def test_a_part_of_a_site_has_the_sites_values_where_the_group_states_none():
    groups = "node_groups: {a: {}, b: {gpu: a100, max_nodes: 2}}\n"
    text = f"gpu: h100\ngpus_per_node: 8\nmax_nodes: 4\npartition: p\n{groups}"
    site = parse_site(text, "site.yaml")
    a, b = site.part("a"), site.part("b")
    assert (a.gpu, a.max_nodes, a.partition, a.node_groups) == ("h100", 4, "p", {})
    assert (b.gpu, b.max_nodes, b.gpus_per_node) == ("a100", 2, 8)
    assert site.part("unknown") is site
