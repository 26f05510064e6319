"""Templates of a user's command line: jinja2 without a way to Python's objects."""

import pytest

from bench_workloads.trainers.driver.templates import render, renders
from tests.support.made_records import made_run


def test_a_template_has_jinjas_filters_and_quotes_values():
    assert render(made_run(), "--lr {{ lr }} --name {{ name | upper }}", {"lr": 0.1, "name": "a b"}, quoted=True) == (
        "--lr 0.1 --name 'A B'"
    )


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ x.__init__.__globals__ }}",
    ],
)
def test_a_template_cannot_reach_python(text):
    with pytest.raises(ValueError, match="invalid value for a template: SecurityError"):
        render(made_run(), text, {"x": ValueError}, quoted=False)


@pytest.mark.parametrize(("text", "known"), [
    ("{% if pp > 1 %}{% set x = 1 %}{% else %}{% set x = 2 %}{% endif %}{{ x }}", True),
    ("{% for i in range(tp) %}{{ loop.index }}{% endfor %}{{ own | default(3) }}", True),
    ("{% if tp > 1 %}{{ x }}{% endif %}", False),
])  # fmt: skip
def test_names_that_a_template_sets_are_its_own(text, known):
    assert renders(text) == known
