"""Measured rates of a cluster: the file next to the site's, and what it changes in a plan."""

import msgspec
import pytest
import yaml

from sweep.inputs.load import load_inputs, load_site
from sweep.inputs.site import parse_site
from sweep.physics.measured import MeasuredCollective
from sweep.planning.build import build
from tests.support.command_line import Called
from tests.support.refusals import mistakes_of

SITE = "gpus_per_node: 8\ngpu: h100\n"
MEASURED = """\
date: 2026-11-20
nodes: [node-01, node-02]
matmul_flops: {bf16: 6.9e14}
memory_bytes_per_s: 2.6e12
inside_bytes_per_s: 3.9e11
between_bytes_per_s: 4.6e10
collectives:
  - {kind: all_reduce, nodes: 2, ranks: 16, bytes: 268435456, seconds: 0.0015, spread: 0.1}
"""
GRID = """\
models: [8B]
nodes: [4]
workload: megatron
sequence_length: 4096
global_batch: 1Mi
tp: [1, 2, 8, 16]
pp: [1, 4]
zero: [1]
micro_batch_size: [1, 2]
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "grid.yaml").write_text(GRID)
    (tmp_path / "site.yaml").write_text(SITE)
    return tmp_path


def mistakes(folder, text):
    (folder / "site.measured.yaml").write_text(text)
    return [str(one) for one in mistakes_of(load_site, given=str(folder / "site.yaml"))]


def test_the_file_next_to_the_sites_is_read(folder):
    (folder / "site.measured.yaml").write_text(MEASURED)
    measured = load_site(given=str(folder / "site.yaml")).hardware.measured
    assert measured.matmul_flops == {"bf16": 6.9e14}
    assert measured.between_bytes_per_s == 4.6e10
    assert measured.collectives == (
        MeasuredCollective(kind="all_reduce", nodes=2, ranks=16, bytes=268435456, seconds=0.0015, spread=0.1),
    )
    assert measured.provenance == "measured 2026-11-20 on node-01, node-02"


@pytest.mark.parametrize(("text", "words"), [
    ("between_bytes_per_s: fast", "site.measured.yaml:1: between_bytes_per_s: expected a number"),
    ("date: x\ncolectives: []", ".yaml:2: colectives: unknown key 'colectives' (did you mean collectives?)"),
    ("spread: 0", "spread is a standard deviation of a logarithm"),
    ("matmul_flops: {bf16: -3}", "rates must be positive"),
    ("collectives: [{kind: broadcast, nodes: 2, ranks: 16, bytes: 1, seconds: 1}]", "kind is one of all_reduce"),
    ("collectives: [{kind: all_reduce, nodes: 2, ranks: 1, bytes: 1, seconds: 1}]", "ranks (at least 2"),
    ("collectives: [{kind: all_reduce, nodes: 2}]", ".yaml:1: collectives[0]: ranks is missing"),
    ("- 3", "expected keys with values, found a list"),
])  # fmt: skip
def test_a_mistake_is_reported_at_its_place(folder, text, words):
    assert any(words in one for one in mistakes(folder, text))


def test_rates_given_twice_are_refused(folder):
    (folder / "site.yaml").write_text(SITE + "measured: {between_bytes_per_s: 1e9}\n")
    (found,) = mistakes(folder, MEASURED)
    assert "measured rates are given twice" in found


def test_a_sweeps_copy_of_its_site_keeps_them(folder):
    (folder / "site.measured.yaml").write_text(MEASURED)
    site = load_site(given=str(folder / "site.yaml"))
    assert parse_site(yaml.safe_dump(site.model_dump(mode="json", exclude_none=True)), "site.yaml") == site
    order = msgspec.json.decode(msgspec.json.encode(site.measured), type=type(site.measured))
    assert order == site.measured


def order_of(folder):
    grid, site = load_inputs(folder / "grid.yaml", [], str(folder / "site.yaml"))
    rows = [row for row in build(grid, site).table.to_pylist() if row["status"] == "run"]
    names = ("tp", "pp", "micro_batch_size")
    return {tuple(row[n] for n in names): (place, row["predicted_step_s"]) for place, row in enumerate(rows)}


def test_a_slow_network_changes_the_order_in_favour_of_what_sends_least(folder):
    """Data parallelism alone is fastest on the network of the data sheet; on a slow one pipelines are."""
    before = order_of(folder)
    (folder / "site.measured.yaml").write_text("date: 2026-11-20\nnodes: [n1, n2]\nbetween_bytes_per_s: 2.0e9\n")
    after = order_of(folder)
    assert set(before) == set(after)
    slower = {layout: after[layout][1] / before[layout][1] for layout in before}
    flat, piped = ([layout for layout in before if layout[1] == pp] for pp in (1, 4))
    assert min(slower[one] for one in flat) > max(slower[one] for one in piped) > 1
    first_before, first_after = (min(found, key=lambda one: found[one][0]) for found in (before, after))
    assert first_before in flat
    assert first_after in piped


def test_the_plan_shows_where_each_rate_is_from(folder):
    (folder / "site.measured.yaml").write_text(MEASURED)
    plan, words = Called("sweep.cli.plan:plan"), (folder / "grid.yaml", "--site", folder / "site.yaml")
    text = plan.shown(*words, "--show", "model")
    assert "network per GPU: 46 GB/s ± 5%  (measured 2026-11-20 on node-01, node-02)" in text
    sources = {row["rate"]: row["source"] for row in plan.json(*words, "--show", "model")["rates"]}
    assert sources["memory"].startswith("measured 2026-11-20")
    assert "ML Engineering" in sources["matrix products, fp8"]
