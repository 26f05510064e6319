"""Grids: values read from YAML, and mistakes reported."""

import itertools

import pytest
import yaml

from sweep.inputs.grid import Grid, json_schema
from sweep.inputs.load import parse_grid
from sweep.inputs.yaml_lines import Problem
from sweep.physics.catalogue import MODELS
from tests.support.refusals import mistakes_of

GOOD = """\
name: good
workload: transformer
models: [8B]
nodes: [1, 2]
sequence_length: 4096
global_batch: 1Mi
tp: [1, 2]
"""


def mistakes(text, overrides=()):
    return mistakes_of(parse_grid, text, "grid.yaml", overrides)


def messages(text, overrides=()):
    return [str(mistake) for mistake in mistakes(text, overrides)]


def with_line(key, value):
    """GOOD with one key replaced or added; the line of that key."""
    lines = [line for line in GOOD.splitlines() if not line.startswith(f"{key}:")]
    return "\n".join([*lines, f"{key}: {value}"]), len(lines) + 1


BAD = {
    "no model": ("models", "[]", "no model is given (such as models: [8B])"),
    "a list for a name": ("models", "[[8B]]", "expected a model's name, or name: shape"),
    "no name": ("models", "[{}]", "expected a model's name, or name: shape"),
    "no shape": ("models", "{}", "no model is given (such as models: [8B])"),
    "part of a known name": ("models", "[405B]", "did you mean Llama-3.1-405B?"),
    "unknown key": ("micro_batch_sise", "[1]", "did you mean micro_batch_size?"),
    "a fraction for a whole number": ("iterations", "2.5", "expected a whole number"),
    "a truth value for a number": ("tp", "[true]", "expected whole numbers"),
    "unknown model": ("models", "[9B]", "unknown model '9B'"),
    "near model": ("models", "[Llama-3-8bb]", "did you mean"),
    "model twice": ("models", "[8B, 8B]", "is given twice"),
    "incomplete shape": (
        "models",
        "{mine: {num_layers: 2, num_heads: 2, intermediate_size: 8, vocab_size: 9}}",
        "hidden_size is missing",
    ),
    "unknown key of a shape": (
        "models",
        "{m: {num_layers: 2, hidden_size: 8, num_heads: 2, intermediate_size: 8, vocab_size: 9, vocab: 1}}",
        "did you mean vocab_size?",
    ),
    "a shape that cannot be": (
        "models",
        "{m: {num_layers: 2, hidden_size: 8, num_heads: 3, num_kv_heads: 2, intermediate_size: 8, vocab_size: 9}}",
        "not a multiple of num_kv_heads",
    ),
    "hostile name": ("name", "'\"; rm -rf ~\"'", "is not allowed here"),
    "new line in a name": ("name", '"good\\n"', "is not allowed here"),
    "both batches": ("tokens_per_gpu", "8192", "exclude each other"),
    "not a number": ("global_batch_tolerance", ".nan", "expected a number"),
    "constraint with an unknown name": ("constraints", "[tpp <= 8]", "unknown name 'tpp'"),
    "constraint that is no expression": ("constraints", "['tp <=']", "is not an expression"),
    "constraint that is a statement": ("constraints", "['tp = 3']", "not a single condition"),
    "one constraint": ("constraints", "tp <= 8", "write it in brackets, or each item"),
    "a factor that ends nothing": ("stop_slow", "1", "expected auto, off or a factor of at least 1.1, found 1"),
    "a key of the site": ("partition", "gpu", "write it below `site:`"),
    "a field's abbreviation": ("mbs", "[1, 2]", "did you mean micro_batch_size?"),
    "constraint that is a list": ("constraints", "[[1]]", "expected text"),
    "exclude without a point": ("exclude", "[3]", "expected `axis: value` pairs"),
    "a bad variable": ("env", "{1X: a}", "not a name of an environment variable"),
    "a truth value for a variable": ("env", "{A: true}", "quote it"),
    "a near strategy": ("strategy", "guide", "did you mean guided?"),
    "an unknown key of a budget": ("budget", "{hours: 3}", "unknown key 'hours'"),
    "a bad site": ("site", "{gpu: h101, gpus_per_node: 8}", "did you mean h100?"),
    "an incomplete site": ("site", "{gpu: h100}", "gpus_per_node is missing"),
    "a parameter that is a mapping": ("params", "{x: {y: 1}}", "a range {from: 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_each_bad_value_is_reported_once_at_its_line(case):
    key, value, words = BAD[case]
    text, line = with_line(key, yaml.safe_dump(value, default_flow_style=True) if isinstance(value, list) else value)
    (found,) = mistakes(text)
    assert words in str(found), found
    assert (found.file, found.line) == ("grid.yaml", line), found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a grid: expected `key: value` lines"),
        ("- 1\n- 2\n", "not a grid: expected `key: value` lines"),
        ("just words", "not a grid: expected `key: value` lines"),
        ("name: [unclosed\nnodes: }", "not YAML"),
        ("a: b: c", "not YAML"),
        ("\tname: x", "found a tab"),
        ('name: "x\nnodes: 1\n', "a text in quotes (what began here"),
        ("name: x\nnodes\n", "a key without `: `"),
        (GOOD + "  zero: 1\n", "look at its indentation"),
        (GOOD + "---\n" + GOOD, "expected a single document"),
        ("name: *nowhere", "not YAML"),
        ("name: x\x01y", "not YAML"),
        ("a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
            f"{c}: &{c} [{','.join([f'*{p}'] * 9)}]\n" for p, c in itertools.pairwise("abcdefghi")
        ), "aliases"),
        (GOOD + "name: again\n", "the key 'name' is given twice, first in line 1"),
        *((f"{GOOD}params: {value}\n", "a YAML tag is not allowed here")
          for value in ("!!python/object/apply:os.system [id]", "!mine {width: 1}", "!mine text")),
        (GOOD + "env: {<<: {A: 1}}\n", "<< cannot be a key"),
        (GOOD.replace("global_batch: 1Mi\n", ""), "neither global_batch nor tokens_per_gpu"),
        (GOOD.replace("models: [8B]\n", ""), "models is missing"),
        (GOOD.replace("nodes: [1, 2]\n", ""), "nodes is missing"),
    ],
)  # fmt: skip
def test_what_is_no_grid_gives_one_clear_message(text, words):
    (found,) = messages(text)
    assert words in found


def test_all_mistakes_at_once_in_the_order_of_lines():
    text = """\
nam: x
workload: 'a b'
models: [1C, {mine: {num_layers: 2, hiden_size: 3}}]
nodes: [1, 1]
sequence_length: "a"
tp: 3x
constraints: [tpp < 3, "tp <"]
timeouts: {start: 0, foo: 3}
site: {gpu: h100, gpus_per_node: 8, partitio: x}
iterations: 0
"""
    found = mistakes(text)
    lines = [mistake.line for mistake in found if mistake.line and "neither" not in mistake.fact]
    assert lines == sorted(lines)
    assert set(lines) == set(range(1, 11))
    assert any("neither global_batch" in mistake.fact for mistake in found)
    assert {m.path for m in found} >= {"constraints[0]", "constraints[1]"}


def test_all_mistakes_of_one_shape_are_reported():
    """A size out of range hid the others."""
    text, _ = with_line("models", "{mine: {num_layers: -1, hidden_size: 8, heads: 3, num_kv_heads: x, vocab_size: 9}}")
    facts = {(mistake.path, mistake.fact.partition(" (")[0]) for mistake in mistakes_of(parse_grid, text, "g")}
    assert facts >= {
        ("models.mine.num_layers", "-1 is out of range"), ("models.mine.heads", "unknown key 'heads'"),
        ("models.mine", "num_heads is missing"), ("models.mine", "intermediate_size is missing"),
    }  # fmt: skip
    assert any(path == "models.mine.num_kv_heads" for path, _ in facts)


@pytest.mark.parametrize(
    ("spelt", "known"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B"), ("meta-llama/Meta-Llama-3-70B", "Llama-3-70B"),
        ("llama3-8b", "Llama-3-8B"), ("Llama-2-7b-chat-hf", "Llama-2-7B"), ("qwen/qwen3-30b-a3b", "Qwen3-30B-A3B"),
        ("openai/gpt-oss-20b", "GPT-OSS-20B"), ("HuggingFaceTB/SmolLM3-3B-Base", "SmolLM3-3B"),
    ],
)  # fmt: skip
def test_a_model_is_known_by_its_usual_spellings(spelt, known):
    assert parse_grid(with_line("models", f"['{spelt}']")[0], "g").models == {known: MODELS[known]}


def test_every_form_of_models():
    shape = "{num_layers: 2, hidden_size: 64, num_heads: 4, intermediate_size: 128, vocab_size: 100}"
    for models in (f"[8B, {{mine: {shape}}}]", f"{{8B: , mine: {shape}}}", f"{{mine: {shape}, 8B: 8B}}"):
        grid = parse_grid(with_line("models", models)[0], "g")
        assert list(grid.models) == ["8B", "mine"]
        assert grid.models["8B"] == MODELS["8B"]
        assert grid.models["mine"].num_kv_heads == 4
    assert parse_grid(with_line("models", "{base: 8B}")[0], "g").models == {"base": MODELS["8B"]}
    assert parse_grid(with_line("models", "8B")[0], "g").models == {"8B": MODELS["8B"]}


def test_overrides_replace_values_and_name_themselves():
    grid = parse_grid(GOOD, "g", ["nodes=[4]", "timeouts.start=1m", "env.NCCL_ALGO=[Ring, Tree]", "params.x=3"])
    assert grid.nodes == (4,)
    assert grid.timeouts.start == 60
    assert grid.env == {"NCCL_ALGO": ("Ring", "Tree")}
    assert grid.params == {"x": (3,)}


def test_an_override_takes_the_lines_of_what_it_replaces_and_no_other_ones():
    text = GOOD + "timeouts:\n  start: soon\niterations: many\n"
    at = text.splitlines().index("iterations: many") + 1
    found = {mistake.path: mistake.line for mistake in mistakes(text, ["timeouts={start: later}"])}
    assert found["iterations"] == at
    assert found["timeouts.start"] is None, "line 9 has what was replaced"


def test_a_mistake_of_a_grid_that_was_made_in_python_names_no_file():
    made = Grid(**dict(parse_grid(GOOD, "g")))
    (found,) = made.located([Problem(("tp",), "is too wide")])
    assert (found.path, found.fact, found.line) == ("tp", "is too wide", None)
    assert made.mistake("is too wide", ("tp",)) == found


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("nodez.x=1", "-o nodez.x=1: unknown key 'nodez' (did you mean nodes?)"),
        ("nodes", "an override is key=value"),
        ("=3", "an override is key=value"),
        ("nodes=[1", "not YAML"),
        ("tp=x", "tp: expected whole numbers"),
        ("timeouts.begin=3", "unknown key 'begin'"),
        ("name.x=3", "name is not a mapping"),
    ],
)
def test_a_bad_override_is_reported(option, words):
    (found,) = messages(GOOD, [option])
    assert words in found


@pytest.mark.filterwarnings("error")
def test_a_grid_goes_around_through_yaml():
    text = GOOD + (
        "params: {a: [1, x, 0.5, null, true], b: 'no'}\nenv: {A: ['1', '010']}\n"
        "constraints: [tp < 3, fused_optimizer]\ninclude: [{tp: 4}]\nexclude: [{tp: 1, nodes: [2]}]\n"
        "max_run_time: 10m\nstop_slow: 2\n"
        "site: {gpu: h100, gpus_per_node: 8, setup: ['echo \"{{ x }}\"', 'a\n\n b'], partition: p}\npp: auto\n"
        "strategy: guided\nbudget: {share: 0.1, wall_time: 2h}\n"
    )
    grid = parse_grid(text, "g")
    again = parse_grid(grid.to_yaml(), "h")
    assert again == grid
    assert again.to_yaml() == grid.to_yaml()
    assert grid != parse_grid(text.replace("tp < 3", "tp < 2"), "g")
    assert grid != "good"


def test_a_search_is_given_the_budget_with_the_repeats_and_how_much_it_may_miss():
    for text, limits in (
        ("", {}), ("repeats: 2\n", {}), ("miss: 2%\n", {"miss": 0.02}),
        ("miss: 2%\nrepeats: 2\nbudget: {runs: 9}\n", {"runs": 9, "repeats": 2, "miss": 0.02}),
    ):  # fmt: skip
        assert parse_grid(GOOD + text, "g").limits == limits


def test_the_schema_names_and_describes_every_key():
    schema = json_schema()
    properties = schema["properties"]
    assert set(parse_grid(GOOD, "g").model_dump(warnings=False)) == set(properties)
    assert schema["additionalProperties"] is False
    names = ("tp", "micro_batch_size", "zero", "dtype", "nodes")
    auto = [name for name in names if {"const": "auto"} in properties[name]["anyOf"]]
    assert auto == ["tp", "micro_batch_size", "zero", "dtype"], "node counts may not be"
    values = properties["params"]["additionalProperties"]["anyOf"]
    assert {"const": "auto"} not in values, "a parameter may be the text auto, which means nothing more"
    assert any("from" in form.get("properties", {}) for form in values), "a range, as for every axis"
    assert {"type": "string"} in properties["models"]["anyOf"]
    assert "weak scaling" in properties["tokens_per_gpu"]["description"]
    of_models = schema["$defs"]["ModelShape"]["properties"]
    assert of_models["tied_embeddings"]["description"] == "the output projection is the input embedding"
    assert "description" not in of_models["norm"], "nothing is below it"


def _within(schema):
    """The schema and all schemas in it."""
    if isinstance(schema, dict):
        yield schema
        for part in schema.values():
            yield from _within(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _within(part)


def test_the_schema_takes_the_smallest_values_that_the_reader_takes():
    """Lists and named models begin at one item, sizes at 1, ZeRO stages at 0, ranges at 1."""
    properties = json_schema()["properties"]
    lists = [one["minItems"] for one in _within(properties) if one.get("type") == "array" and "minItems" in one]
    assert set(lists) == {1}
    assert {one["minProperties"] for one in _within(properties["models"]) if "minProperties" in one} == {1}
    for key in ("tp", "pp", "cp", "ep", "micro_batch_size", "nodes", "dp", "grad_accum", "zero"):
        minimum = 0 if key == "zero" else 1
        forms = [one for one in _within(properties[key]) if one.get("type") == "integer" and "minimum" in one]
        assert {one["minimum"] for one in forms} == {minimum, 1}, "a range begins at 1"
        for value, refused in ((minimum, False), (minimum - 1, True), ([], True)):
            text, _ = with_line(key, value)
            found = [mistake.path for mistake in mistakes(f"{text}\ntq: 1\n")]
            assert found == [key, "tq"] if refused else ["tq"], (key, value)


@pytest.mark.parametrize("wrong", ["budget: {runs: 0}", "timeouts: {start: soon}", "iterations: no", "include: [{}]"])
def test_a_mistake_deep_in_one_key_hides_no_unknown_parameter(wrong):
    found = messages(GOOD + f"{wrong}\nparams: {{fusd_optimizer: true}}\nrecompute: [partial]\ntq: 1\n")
    for words in ("did you mean fused_optimizer?", "no recompute 'partial'", "unknown key 'tq'"):
        assert sum(words in one for one in found) == 1, found
    assert len(found) == 4


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("budget: 30%", "budget: expected a mapping, found '30%' (its keys: share, runs, node_hours, wall_time, "),
        ("budget: 0.3", "budget: expected a mapping, found 0.3 (its keys: share, "),
        ("budget: {share: 300%}", "budget.share: expected at most 1, found '300%'"),
        ("timeouts: 30", "timeouts: expected a mapping, found 30 (its keys: start, first_iteration, steady)"),
    ],
)
def test_a_value_where_keys_belong_names_the_keys_and_a_percentage_its_limit(line, message):
    (found,) = messages(f"{GOOD}{line}\n")
    assert message in found
