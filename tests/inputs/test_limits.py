"""The least and the greatest value of each key, what is beyond them, what an omitted key has, and the YAML of both."""

import pytest

from sweep.errors import SweepError
from sweep.inputs import yaml_lines
from sweep.inputs.detect import NodeGroup, cluster_site
from sweep.inputs.load import parse_grid, read_texts
from sweep.inputs.models import shape_of_config
from sweep.inputs.site import parse_site
from sweep.inputs.validation import amount, amount_text, fraction, seconds
from sweep.inputs.yaml_lines import MAX_DEPTH, load
from tests.support.refusals import mistakes_of

GRID = {"models": "[8B]", "nodes": "[1]", "sequence_length": "4096", "global_batch": "1Mi"}
SITE = {"gpus_per_node": "8", "gpu": "h100"}


def grid(**keys):
    return parse_grid("".join(f"{key}: {value}\n" for key, value in (GRID | keys).items()), "grid.yaml")


def site(**keys):
    return parse_site("".join(f"{key}: {value}\n" for key, value in (SITE | keys).items()), "site.yaml")


def limited(make, key, inside, outside):
    for value in inside:
        assert make(**{key: value})
    for value in outside:
        assert all((mistake.path or "").startswith(key) for mistake in mistakes_of(make, **{key: value}))


@pytest.mark.parametrize(("key", "inside", "outside"), [
    ("nodes", [1, 2**20], [0, 2**20 + 1]), ("sequence_length", [1, 2**26], [0, 2**26 + 1]),
    ("tp", [1, 2**20], [0, 2**20 + 1]), ("zero", [0, 3], [-1, 4]), ("dp", [1], [0]), ("grad_accum", [1], [0]),
    ("global_batch_tolerance", [0, 0.99], [-0.01, 1]), ("max_memory_share", [0.01, 2], [0, 2.01]),
    ("warmup_iterations", [0, 10_000], [-1, 10_001]), ("iterations", [1, 100_000], [0, 100_001]),
    ("repeats", [1, 1000], [0, 1001]), ("remeasure", [0, 1], [-0.01, 1.01]), ("seed", [0, 2**32 - 1], [-1, 2**32]),
    ("max_run_time", [1, "365d"], [0, "366d"]), ("global_batch", [1, 2**50 - 1], [0, 2**50]),
    ("budget", ["{share: 0.001}", "{share: 1}", "{runs: 1}", "{node_hours: 0.1}", "{runs_per_cell: 1}"],
     ["{share: 0}", "{share: 1.01}", "{runs: 0}", "{node_hours: 0}", "{runs_per_cell: 0}", "{node_hours_per_cell: 0}"]),
    ("budget", ["{node_hours_per_cell: 0.1}", "{wall_time: 1}"], ["{node_hours: -0.5}", "{node_hours_per_cell: -0.5}"]),
    ("compile", ["true", "auto"], ["1", "maybe"]), ("preflight", ["quick", "node", "perf", "'off'"], ["all"]),
])  # fmt: skip
def test_a_grid_takes_values_within_their_limits_and_no_others(key, inside, outside):
    limited(grid, key, inside, outside)


@pytest.mark.parametrize(("key", "inside", "outside"), [
    ("gpus_per_node", [1, 1024], [0, 1025]), ("max_nodes", [1, 100_000], [0, 100_001]),
    ("max_pilots", [1, 10_000], [0, 10_001]),
    ("nice", [-(2**31), 2**31 - 1], [-(2**31) - 1, 2**31]), ("max_runs_per_pilot", [1], [0]),
    ("max_local_ranks", [1, 65536], [0, 65537]), ("port_range", ["[1024, 1031]", "[65528, 65535]"],
     ["[1023, 2000]", "[1024, 1030]", "[65000, 65536]", "[2000, 1500]"]),
    ("umask", ["'0077'", "'077'", "'0022'"], ["'0777'", "'0088'", "'00077'", "'0000'", "'0057'", "'057'", "'0075'"]),
    ("node_groups", ["{a: {gpus_per_node: 1, max_nodes: 1, max_pilots: 1}}",
                     "{a: {gpus_per_node: 1024, max_nodes: 100000, max_pilots: 10000}}"],
     ["{a: {gpus_per_node: 0}}", "{a: {gpus_per_node: 1025}}", "{a: {max_nodes: 0}}", "{a: {max_nodes: 100001}}",
      "{a: {max_pilots: 0}}", "{a: {max_pilots: 10001}}"]),
    ("interface", ["ib0", "x" * 15], ["x" * 16]), ("name", ["x", "x" * 64], ["x" * 65]),
    ("partition", ["x" * 128], ["x" * 129]), ("constraint", ["x" * 256], ["x" * 257]),
    ("env", ["{" + "X" * 128 + ": 1}"], ["{" + "X" * 129 + ": 1}"]),
    ("dollars_per_gpu_hour", [0.01, 1.0], [0, -0.5]), ("co2_g_per_kwh", [0, 0.5], [-0.01]),
    ("failures_per_gpu_day", [1e-6], [0, -1]),
    ("node_groups", ["{a: {dollars_per_gpu_hour: 0.01}}"], ["{a: {dollars_per_gpu_hour: 0}}"]),
])  # fmt: skip
def test_a_site_takes_values_within_their_limits_and_no_others(key, inside, outside):
    limited(site, key, inside, outside)


def test_what_a_grid_omits_has_one_value_per_axis_and_the_documented_defaults():
    found = grid()
    axes = (found.tp, found.pp, found.cp, found.ep, found.zero, found.micro_batch_size)
    assert axes == ((1,), (1,), (1,), (1,), (0,), (1,))
    assert (found.recompute, found.pp_schedule, found.dtype) == (("none",), ("1f1b",), ("bf16",))
    assert (found.warmup_iterations, found.iterations, found.repeats, found.seed) == (2, 5, 1, 0)
    assert (found.global_batch_tolerance, found.tp_across_nodes, found.isolate) == (0.0, False, False)
    timeouts = found.timeouts
    assert (timeouts.start, timeouts.first_iteration, timeouts.steady) == (300, 300, 20)
    assert (found.remeasure_share, grid(workload="simulated").remeasure_share) == (0.1, 0.0)
    assert grid(workload="simulated", remeasure=0.2).remeasure_share == 0.2
    stops = [grid(**given).stops_slow for given in ({}, {"strategy": "exhaustive"}, {"stop_slow": 1.5})]
    assert stops == ["auto", "off", 1.5]
    assert [grid(miss=miss).miss for miss in (0.05, "5%", "5.5 %")] == [0.05, 0.05, 0.055]


def test_every_share_takes_a_percentage_and_every_count_a_unit():
    found = grid(budget="{share: 5%, runs: 1k, runs_per_cell: 2Ki}", remeasure="5%", sequence_length="4Ki",
                 max_memory_share="5%", global_batch_tolerance="5%")  # fmt: skip
    shares = (found.budget.share, found.remeasure, found.max_memory_share, found.global_batch_tolerance)
    assert shares == (0.05,) * 4
    assert (found.budget.runs, found.budget.runs_per_cell, found.sequence_length) == (1000, 2048, 4096)
    for length in ("4k", "8 K"):  # to whoever writes so it is 4096, by the rule of counts 4000
        (mistake,) = mistakes_of(grid, sequence_length=length)
        assert "write 4Ki" in str(mistake)


def test_texts_are_read_into_the_parameters_and_the_lists_of_points(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_text("text")
    points = "workload: command\nparams: {config: '@a', handle: '@me'}\ninclude: [{config: ['@a', plain, '@none']}]"
    document = load(points.replace(", '@none'", ""), "grid.yaml")
    assert not read_texts(document)
    found = document.value["params"], document.value["include"]
    assert found == ({"config": "text", "handle": "@me"}, [{"config": ["text", "plain"]}])
    (problem,) = read_texts(load(points, "grid.yaml"))
    assert problem.path == ("include", 0, "config")


def test_a_fraction_is_a_number_or_a_percentage_below_the_whole():
    assert [fraction(value) for value in ("3%", "0.03", 0, "0%", "99.9%")] == [0.03, 0.03, 0, 0, pytest.approx(0.999)]
    for value in ("100%", 1, "-1%", -0.1, "nan", "some"):
        with pytest.raises(ValueError, match="is not a fraction from 0% to below 100%"):
            fraction(value)


def test_what_a_site_omits_has_the_documented_defaults():
    found = site()
    assert (found.pilot_time, found.max_pilots, found.poll_interval_s) == (4 * 3600, 4, 15)
    assert (found.scratch, found.umask, found.name) == ("/tmp", "0077", "site")
    assert found.parts == {"": found}
    assert found.part("any") is found


def test_a_batch_is_of_all_gpus_or_of_each():
    assert grid().global_batch_for(16) == 2**20
    weak = parse_grid("models: [8B]\nnodes: [1]\nsequence_length: 4096\ntokens_per_gpu: 8Ki\n", "grid.yaml")
    assert weak.global_batch_for(16) == 16 * 8192


@pytest.mark.parametrize(("value", "wanted"), [
    (1, 1.0), (0.5, 0.5), ("1d", 86400), ("1d2h3m4s", 93784), ("1d2h3min4.5s", 93784.5), ("2-03:04:05", 183845),
    ("2-03:04", 183840), ("03:04:05", 11045), ("365d", 31536000), ("4h", 14400), ("1-00:00:00", 86400),
])  # fmt: skip
def test_durations_add_days_hours_minutes_and_seconds(value, wanted):
    assert seconds(value) == wanted


@pytest.mark.parametrize(
    "value", [0, -1, True, "366d", "", "03:04", "1h1d", "nan", float("nan"), "h", "4 hours", "-3m", "1h-", "1:2:3:4"]
)
def test_no_duration_is_over_a_year_or_less_than_something(value):
    with pytest.raises(ValueError, match="is not a duration"):
        seconds(value)


@pytest.mark.parametrize(("count", "text"), [
    (2**10, "1Ki"), (2**20, "1Mi"), (1023 * 2**20, "1023Mi"), (2**30, "1Gi"), (10**6, "1M"),
    (1000, "1K"), (1001, "1,001"), (1, "1"), (3 * 2**40, "3Ti"),
])  # fmt: skip
def test_the_short_form_of_a_count_is_read_back(count, text):
    assert amount_text(count) == text
    assert amount(text) == count


@pytest.mark.parametrize(("text", "count"), [
    ("1k", 10**3), ("2.5M", 2_500_000), (4e6, 4_000_000), ("1_048_576", 2**20), ("1,048,576", 2**20),
    ("1.5G", 1_500_000_000), ("1t", 10**12), ("3b", 3 * 10**9), ("8.03M", 8_030_000), ("8.03B", 8_030_000_000),
    ("1e12", 10**12),
    ("1Ki", 1024), ("0.5Mi", 2**19), ("2gi", 2**31), ("1Ti", 2**40),
])  # fmt: skip
def test_letters_of_a_count_are_powers_of_a_thousand_and_with_an_i_of_1024(text, count):
    assert amount(text) == count


@pytest.mark.parametrize("value", [0, -1, True, "1.5", 2**50, "1e", "Mi", 1.5, "1024,2048", "1024,512", "1,2"])
def test_what_is_no_count_is_refused(value):
    with pytest.raises(ValueError, match=r"count|number"):
        amount(value)


def test_a_document_is_nested_so_deep_and_no_deeper():
    texts = ["[" * depth + "1" + "]" * depth for depth in (MAX_DEPTH, MAX_DEPTH + 1)]
    assert load(texts[0], "f").value
    with pytest.raises(SweepError, match=f"nested more than {MAX_DEPTH} deep"):
        load(texts[1], "f")


def test_aliases_nest_no_deeper_than_the_text_may():
    """Each line is nested twice; what it names is nested as often as there are lines."""
    lines = ["a0: &a0 {key: 1}", *(f"a{n}: &a{n} {{key: *a{n - 1}}}" for n in range(1, MAX_DEPTH))]
    assert load("\n".join(lines[: MAX_DEPTH - 1]), "f").value
    with pytest.raises(SweepError, match="too deeply nested"):
        load("\n".join(lines[:MAX_DEPTH]), "f")


@pytest.mark.parametrize(("text", "value"), [
    ("010", 10), ("0x10", "0x10"), ("1_000", 1000), ("-3", -3), ("+3", 3), ("1e3", 1000.0), (".5", 0.5), ("on", "on"),
    ("yes", "yes"), ("4:00:00", "4:00:00"), ("2026-11-20", "2026-11-20"), ("~", None), ("null", None), ("TRUE", True),
])  # fmt: skip
def test_scalars_are_those_of_yaml_1_2(text, value):
    assert load(text, "f").value == value


def test_a_number_that_is_too_long_is_reported_and_not_read():
    assert load("1" * 30, "f").value == int("1" * 30)
    document = load("k: " + "1" * 31, "f")
    assert document.value == {}
    assert "expected a whole number, found a number that is too long" in str(document.mistakes[0])


@pytest.mark.parametrize(("cpus", "ranks"), [(4, 4), (8, 8), (96, 8)])
def test_without_gpus_there_are_as_many_ranks_as_cpus_up_to_eight(cpus, ranks):
    group = NodeGroup(partition="p", default=True, up=True, time_limit_s=600, nodes=3, cpus=cpus, gpus=0, gpu_type="")
    found = cluster_site(group, {"ClusterName": "-my cluster!" + "x" * 80}, [])
    assert (found["gpu"], found["gpus_per_node"], found["pilot_time"]) == ("cpu", ranks, 600)
    assert found["name"] == "my-cluster-" + "x" * 53
    assert cluster_site(group, {}, [])["name"] == "cluster"


@pytest.mark.parametrize(("key", "changed"), [
    ({"tie_word_embeddings": True}, {"tied_embeddings": True}), ({"tie_word_embeddings": False}, {}),
    ({"attention_bias": True}, {"qkv_bias": True, "attention_output_bias": True}), ({"attention_bias": False}, {}),
    ({"mlp_bias": True}, {"mlp_bias": True}), ({"mlp_bias": False}, {}),
])  # fmt: skip
def test_what_a_config_states_beyond_its_sizes_is_in_the_shape(key, changed):
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size")
    plain, other = (shape_of_config({"model_type": "llama"} | dict.fromkeys(names, 8) | more)[0] for more in ({}, key))
    differing = {name: value for name, value in other.as_dict().items() if value != plain.as_dict()[name]}
    assert differing == changed


@pytest.mark.parametrize(("text", "values"), [
    ("a: 1", 2), ("a: [1, 2]\nb: {c: 3}", 6), ("a: &x [1, 2]\nb: *x", 7), ("a: [[], {}]", 4),
])  # fmt: skip
def test_a_document_has_so_many_values_and_no_more(text, values, monkeypatch):
    """Every mapping, list and scalar is one, each time that an alias repeats it."""
    monkeypatch.setattr(yaml_lines, "MAX_NODES", values)
    assert yaml_lines.load(text, "f").value
    monkeypatch.setattr(yaml_lines, "MAX_NODES", values - 1)
    with pytest.raises(SweepError, match="too many"):
        yaml_lines.load(text, "f")


def test_mistakes_of_options_come_before_those_of_the_first_line():
    text = "params: !!set {a}\nnodes: 1\nmodels: [8B]\nsequence_length: 64\nglobal_batch: 64\n"
    assert [mistake.line for mistake in mistakes_of(parse_grid, text, "g", ["tpp=1"])] == [None, 1]


def test_a_size_that_is_no_positive_whole_number_is_named_by_the_key_that_the_config_has():
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size")
    further = ("num_key_value_heads", "num_local_experts", "num_experts_per_tok")
    config = {"model_type": "mixtral"} | dict.fromkeys((*names, *further), 8)
    for key in ("num_local_experts", "num_experts_per_tok"):
        for size in (-1, 0, 2**31, True, 8.0):
            assert shape_of_config(config | {key: size})[1] == [f"{key} is not a positive whole number"]
    for size in (8, 2**31 - 1):
        assert shape_of_config(config | {"vocab_size": size})[1] == []
    del config["hidden_size"], config["vocab_size"]
    assert shape_of_config(config)[1] == ["hidden_size is missing", "vocab_size is missing"]


def test_what_is_not_closed_is_named_with_the_line_before_which_it_should_be():
    (found,) = mistakes_of(load, "models: [a, b\nnodes: [1]\n", "grid.yaml")
    assert (found.line, found.remedy) == (1, "what began here is not closed or not separated before line 2")


def test_measured_rates_are_those_of_the_sites_own_kind_of_gpu():
    measured = object()
    groups = "{same: {max_nodes: 2}, other: {gpu: h200, max_nodes: 2}}"
    whole = site(node_groups=groups).model_copy(update={"measured": measured})
    assert whole.parts["same"].measured is measured
    assert whole.parts["other"].measured is None


def test_text_that_is_no_yaml_or_that_no_file_can_hold_is_reported_at_its_line():
    for line in ("a: b: c", "a: \0", "a: \x07"):
        (mistake,) = mistakes_of(load, f"name: x\nnodes: [1]\n{line}\n", "grid.yaml")
        assert (mistake.file, mistake.line) == ("grid.yaml", 3)
    document = load('a: 1\nb: "x\\ud800"\nc: "x\\0"\nd: "\\U0001F600"\n', "grid.yaml")
    assert [mistake.line for mistake in document.mistakes] == [2, 3]
    assert document.value == {"a": 1, "b": "x", "c": "x", "d": "\U0001f600"}


@pytest.mark.parametrize("twice", ["a: 1\na: 2", "? [a]\n: 1"])
def test_after_a_key_that_is_refused_the_others_are_read(twice):
    document = load(f"{twice}\nb: 3\nb: 4\nc: 5\n", "grid.yaml")
    assert len(document.mistakes) == 2
    assert "'b'" in str(document.mistakes[1])
    assert (document.value["b"], document.value["c"]) == (3, 5)
    (below,) = load("p: {a: 1, a: 2}", "f").mistakes
    assert [mistake.path for mistake in (*document.mistakes, below)] == [None, None, "p"]
