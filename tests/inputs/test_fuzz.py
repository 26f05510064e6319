"""Any file content is read or refused with SweepError: nothing else is raised, and nothing is run."""

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sweep.contract import Workload
from sweep.errors import SweepError
from sweep.inputs.grid import Grid
from sweep.inputs.load import parse_grid
from sweep.inputs.site import Site, parse_site
from sweep.inputs.yaml_lines import dump, load
from sweep.planning.build import build

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=True),
    st.text(max_size=12),
    st.sampled_from(["auto", "1M", "1Mi", "no", "1e3", "0x10", "010", "~", "4:00:00", "{{ x }}", "tp", "<<", "!x"]),
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=6), inner, max_size=4)),
    max_leaves=8,
)
GOOD = {
    "models": ["tiny-1M"],
    "nodes": [1, 2],
    "sequence_length": 64,
    "global_batch": 1024,
    "tp": [1, 2],
    "site": {"gpu": "cpu", "gpus_per_node": 2},
}
ANY = Workload(name="any", main="x:y", axes=frozenset({"tp", "pp", "micro_batch_size", "zero"}), params={"size": 1})


def read_or_refused(make):
    """The value, or None if it is refused with at least one mistake with text."""
    try:
        return make()
    except SweepError as error:
        mistakes = error.mistakes
    assert mistakes
    assert all(mistake.fact and str(mistake) for mistake in mistakes)
    return None


@settings(max_examples=150)
@given(st.text(max_size=200))
def test_any_text(text):
    for parse in (parse_grid, parse_site):
        read_or_refused(lambda parse=parse: parse(text, "f"))


@settings(max_examples=250)
@example(changed={"budget": None, "params": {}, "workload": None})
@given(st.dictionaries(st.sampled_from(sorted(Grid.model_fields)), values, max_size=3))
def test_any_value_of_a_key_of_a_grid(changed):
    grid = read_or_refused(lambda: parse_grid(yaml.safe_dump({**GOOD, **changed}), "f"))
    if grid is not None:
        assert parse_grid(grid.to_yaml(), "f") == grid
        if grid.site is not None:
            read_or_refused(lambda: build(grid, grid.site, ANY))


@settings(max_examples=250)
@given(st.dictionaries(st.sampled_from(sorted(Site.model_fields)), values, max_size=3))
def test_any_value_of_a_key_of_a_site(changed):
    read_or_refused(lambda: parse_site(yaml.safe_dump({"gpu": "cpu", "gpus_per_node": 2, **changed}), "f"))


operands = st.sampled_from(
    ["tp", "pp", "dp", "grad_accum", "model", "recompute", "zero", "1", "0", "2.5", "'x'", "[1, 2]"]
)
operators = st.sampled_from(
    ["+", "-", "*", "/", "//", "%", "**", "<", "==", "in", "not in", "and", "or", "<<", "@", "is"]
)


@settings(max_examples=200)
@given(st.lists(st.tuples(operands, operators), min_size=1, max_size=5), operands)
def test_any_constraint(parts, last):
    text = " ".join(f"{operand} {operator}" for operand, operator in parts) + f" {last}"
    grid = read_or_refused(lambda: parse_grid(yaml.safe_dump({**GOOD, "constraints": [text]}), "f"))
    if grid is not None:
        read_or_refused(lambda: build(grid, grid.site, ANY))


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
numbers = st.one_of(st.integers(-(10**20), 10**20), st.floats(allow_nan=False, allow_infinity=False))
plain = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=10,
)


@settings(max_examples=200)
@given(plain)
def test_what_is_dumped_is_read_back(value):
    assert load(dump({"x": value}), "f").value == {"x": value}
