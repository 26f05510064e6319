"""What a grid asks for that its workload or its site cannot do; the lists and ranges that a key may state."""

from dataclasses import replace

import pytest

from sweep.contract import Workload
from sweep.inputs.axes import MAX_VALUES, listed, scalars, shown
from sweep.inputs.check import problems_of, problems_of_the_rest
from sweep.inputs.load import parse_grid
from sweep.inputs.site import parse_site

WORKLOAD = Workload(
    name="w",
    main="w:main",
    axes=frozenset({"tp", "zero"}),
    params={"width": 3, "rate": 0.5, "on": True, "word": "plain", "any": None, "kind": "a"},
    choices={"dtype": ("bf16", "fp32"), "kind": ("a", "b")},
)
GRID = "name: g\nworkload: transformer\nmodels: [8B]\nsequence_length: 4096\nglobal_batch: 1Mi\n"
SITE = "name: s\ngpu: h100\ngpus_per_node: 8\nmax_nodes: 4\n"


def found(further="", *, nodes="[1]", site=SITE, workload=WORKLOAD):
    grid = parse_grid(f"{GRID}nodes: {nodes}\n{further}", "g.yaml")
    return [(".".join(map(str, p.path)), p.fact) for p in problems_of(grid, parse_site(site, "s.yaml"), workload)]


@pytest.mark.parametrize(("name", "value", "wanted"), [
    ("width", "7", None), ("width", "0.5", "a whole number"), ("width", "true", "a whole number"),
    ("width", "null", None), ("rate", "0.25", None), ("rate", "2", None), ("rate", "true", "a number"),
    ("rate", "x", "a number"), ("on", "false", None), ("on", "1", "true or false"), ("word", "x", None),
    ("word", "1", "text"), ("any", "x", None), ("any", "1.5", None),
])  # fmt: skip
def test_a_parameters_value_is_of_the_type_of_its_default(name, value, wanted):
    problems = {fact for path, fact in found(f"params: {{{name}: {value}}}") if path == f"params.{name}"}
    assert len(problems) == (wanted is not None)
    assert all(fact.startswith(f"expected {wanted}, found ") for fact in problems)


def test_a_parameter_that_the_workload_lacks_is_named_with_the_nearest():
    (one,) = problems_of(parse_grid(f"{GRID}nodes: 1\nparams: {{widht: 3}}", "g.yaml"), parse_site(SITE, "s"), WORKLOAD)
    assert one.fact == "the workload w has no parameter 'widht'"
    assert "width" in one.remedy


@pytest.mark.parametrize(("further", "wanted"), [
    ("dtype: [bf16, fp32]", []), ("dtype: auto", []), ("params: {kind: [a, b]}", []), ("params: {word: c}", []),
    ("dtype: [bf16, fp8, fp64]", [("dtype", "the workload w has no dtype 'fp8'"),
                                  ("dtype", "the workload w has no dtype 'fp64'")]),
    ("dtype: ['bf16:x']", [("dtype", "the workload w has no dtype 'bf16:x'")]),
    ("dtype: ['bf16,fp32']", [("dtype", "the workload w has no dtype 'bf16,fp32'")]),
    ("routing: ['skewed:1.2', balanced]", []),
    *((f"routing: '{value}'", [("routing", f"'{value}' is no routing")]) for value in ("skewed", "skewed:x", "even:2")),
    ("params: {kind: c}", [("params.kind", "the workload w has no kind 'c'")]),
    ("include: [{dtype: fp8}, {dtype: bf16, kind: c}]", [("include.0.dtype", "the workload w has no dtype 'fp8'"),
                                                         ("include.1.kind", "the workload w has no kind 'c'")]),
    ("include: [{model: 8B, nodes: 2, tp: 2, width: 4}]", []), ("exclude: [{tp: 2, gpus: 8, model: 8B}]", []),
    ("include: [{gpus: 8}]", [("include.0.gpus", "'gpus' is not an axis")]),
    ("exclude: [{tp: 2}, {colour: 1}]", [("exclude.1.colour", "'colour' is not an axis")]),
    ("include: [{model: [8B, 1B]}]", [("include.0.model", "'1B' is not among the grid's models")]),
    ("exclude: [{model: 1B}]", [("exclude.0.model", "'1B' is not among the grid's models")]),
    ("env: {A: [x, y]}\nexclude: [{A: x}]", []),
    ("include: [{tp: 2}, {nodes: 5}]", [("include.1.nodes", "5 nodes are more than the site's max_nodes 4")]),
])  # fmt: skip
def test_choices_are_the_workloads_and_points_name_axes_models_and_nodes_that_there_are(further, wanted):
    assert found(further) == wanted


@pytest.mark.parametrize(("point", "right"), [
    ("tp: 1", True), ("tp: 0", False), ("tp: two", False), ("tp: true", False), ("zero: 0", True), ("zero: -1", False),
    ("nodes: 1", True), ("nodes: 0", False), ("recompute: full", True), ("recompute: 1", False),
    ("compile: true", True),
    ("compile: false", True), ("compile: 1", False), ("dtype: bf16", True), ("dtype: 16", False), ("tp: 1.0", False),
    ("pp_schedule: gpipe", True), ("pp_schedule: 3", False), ("width: 0", True),
])  # fmt: skip
def test_the_values_of_an_include_are_of_the_kind_of_their_axis(point, right):
    name, _, value = point.partition(": ")
    wanted = {"true": "True"}.get(value, value if value.lstrip("-").replace(".", "").isdigit() else repr(value))
    problems = found(f"include: [{{{point}}}]")
    assert [one for one in problems if "is not a value of" in one[1]] == (
        [] if right else [(f"include.0.{name}", f"{wanted} is not a value of {name}")]
    )
    assert found(f"exclude: [{{{point}}}]") == [], "an exclude names what there is none of, too"


GROUPS = "name: s\ngpu: h100\ngpus_per_node: 8\nnode_groups:\n  a: {max_nodes: 2}\n  b: {gpu: a100"


@pytest.mark.parametrize(("site", "nodes", "wanted"), [
    (SITE, "[1, 4]", []), (SITE, "[4, 5, 6]", ["5 nodes are more than the site's max_nodes 4",
                                               "6 nodes are more than the site's max_nodes 4"]),
    (SITE.replace("max_nodes: 4\n", ""), "[500]", []),
    (GROUPS + ", max_nodes: 8}\n", "[8]", []),
    (GROUPS + ", max_nodes: 8}\n", "[9]", ["9 nodes are more than any max_nodes of the site's node groups 8"]),
    (GROUPS + "}\n", "[500]", []),
])  # fmt: skip
def test_nodes_are_no_more_than_the_largest_part_of_the_site_has(site, nodes, wanted):
    assert [fact for _, fact in found(site=site, nodes=nodes)] == wanted


def test_one_name_means_one_column():
    assert found("env: {tp: x, width: y, FREE: z}") == [
        ("env.tp", "the variable 'tp' is also the name of an axis or parameter"),
        ("env.width", "the variable 'width' is also the name of an axis or parameter"),
    ]
    twice = replace(WORKLOAD, params={**WORKLOAD.params, "tp": 1, "gpus": 8})
    assert found(workload=twice) == [
        ("workload", f"the parameter '{name}' of w is also the name of an axis") for name in ("gpus", "tp")
    ]


def test_the_rest_of_a_wrong_grid_is_checked_against_its_workload():
    wrong = {"workload": "transformer", "nodes": "many", "tp": 0, "params": {"no such": 1}, "tokens_per_gpu": 3}
    (problem,) = problems_of_the_rest(wrong)
    assert problem.path == ("params", "no such")
    assert problems_of_the_rest(["no", "mapping"]) == []
    assert problems_of_the_rest(None) == []
    assert problems_of_the_rest({**wrong, "workload": "mybench"}) == [], "what an unknown workload has is not known"


@pytest.mark.parametrize(("value", "text"), [
    ("x" * 40, repr("x" * 40)), ("x" * 41, "a longer text"), ("a\nb", "a longer text"), ({}, "a mapping"),
    ([], "a list"), ((), "a list"), (None, "nothing"), (1.5, "1.5"), (True, "True"),
])  # fmt: skip
def test_a_message_shows_short_values_and_names_the_kind_of_others(value, text):
    assert shown(value) == text


@pytest.mark.parametrize(("given", "values"), [
    (4, [4]), ([1, 2], [1, 2]), ((1, True, 1.0), [1, True, 1.0]), ("text", ["text"]), (None, [None]),
    ({"from": 3, "to": 3}, [3]), ({"from": 1, "to": 4}, [1, 2, 3, 4]), ({"from": 0, "to": 5, "step": 2}, [0, 2, 4]),
    ({"from": -1, "to": 1}, [-1, 0, 1]), ({"from": 1, "to": 9, "times": 2}, [1, 2, 4, 8]),
    ({"from": 1, "to": 8, "times": 2}, [1, 2, 4, 8]), ({"from": 5, "to": 5, "times": 3}, [5]),
])  # fmt: skip
def test_a_key_states_one_value_a_list_or_a_range(given, values):
    found = listed(given)
    assert [(type(one), one) for one in found] == [(type(one), one) for one in values]


@pytest.mark.parametrize(("given", "fact"), [
    ([], "the list is empty"), ([1, 2, 3, 2], "twice: as item 2 and 4"), (["a", "a"], "twice: as item 1 and 2"),
    ({"from": 2, "to": 1}, "from <= to"), ({"from": 1, "to": 4, "step": 0}, "a step of at least 1"),
    ({"from": 1, "to": 4, "times": 1}, "times of at least 2"), ({"from": 0, "to": 4, "times": 2}, "from <= to"),
    ({"from": 1, "to": 4, "step": 1, "times": 2}, "nothing else"), ({"from": 1}, "nothing else"),
    ({"to": 1}, "nothing else"), ({"from": 1, "to": 2, "by": 1}, "nothing else"), ({"from": 1, "to": 2.0}, "whole"),
    ({"from": True, "to": 2}, "whole numbers"),
])  # fmt: skip
def test_what_is_no_list_or_range_is_refused(given, fact):
    with pytest.raises(ValueError, match=fact):
        listed(given)


def test_a_key_has_ten_thousand_values_at_most():
    assert MAX_VALUES == 10_000
    assert len(listed(list(range(MAX_VALUES)))) == len(listed({"from": 1, "to": MAX_VALUES})) == MAX_VALUES
    assert len(listed({"from": 0, "to": 3 * MAX_VALUES - 1, "step": 3})) == MAX_VALUES
    for given in (
        list(range(MAX_VALUES + 1)),
        {"from": 0, "to": MAX_VALUES},
        {"from": 0, "to": 3 * MAX_VALUES, "step": 3},
    ):
        with pytest.raises(ValueError, match=r"10,000"):
            listed(given)


def test_every_wrong_value_is_named_once():
    with pytest.raises(ValueError, match="expected text or a number, found a mapping; expected text"):
        scalars([{}, {"a": 1}, [1], "right"])
    assert scalars(["a", 1, 1.5, True, None]) == ("a", 1, 1.5, True, None)
