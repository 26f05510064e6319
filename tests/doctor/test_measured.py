"""Rates that the doctor measured reach the file next to the site, and change a plan."""

import json

import pytest
import yaml

from sweep.doctor.measured import measured_rates
from sweep.inputs.load import load_inputs
from sweep.inputs.site import parse_measured
from sweep.planning.build import build
from tests.support import driving
from tests.support.doctor.answers import exchange
from tests.support.doctor.driving import examine

GRID = """\
models: [tiny-16M]
nodes: [2]
sequence_length: 512
global_batch: 32768
dtype: [fp32]
tp: [1, 2]
pp: [1, 2]
tp_across_nodes: true
zero: [0, 1, 3]
micro_batch_size: [1, 2, 4]
recompute: [none, full]
"""
LAYOUT = ("dp", "tp", "pp", "zero", "micro_batch_size", "recompute")


def planned(folder):
    """(the layouts in the order in which they would be measured, the source of each rate)"""
    (folder / "grid.yaml").write_text(GRID)
    grid, site = load_inputs(folder / "grid.yaml", [], str(folder / "site.yaml"), None)
    rows = [row for row in build(grid, site).table.to_pylist() if row["status"] == "run"]
    done = driving.succeeds("plan", folder / "grid.yaml", "--site", folder / "site.yaml", "--show", "model", "--json")
    sources = {row["rate"]: row["source"] for row in json.loads(done.stdout)["rates"]}
    return [tuple(row[name] for name in LAYOUT) for row in rows], sources


@pytest.mark.parallel
def test_a_plan_uses_what_was_measured_on_the_nodes(tmp_path):
    code, report = examine(tmp_path, "perf", "pair", nodes=2)
    assert code == 0, report
    written = parse_measured((tmp_path / "site.measured.yaml").read_text(), "site.measured.yaml")
    assert written.nodes == ("local-0", "local-1")
    assert {one.kind for one in written.collectives} == {"all_reduce"}
    after, sources = planned(tmp_path)
    (tmp_path / "site.measured.yaml").unlink()
    before, _ = planned(tmp_path)
    assert sources["memory"].startswith("measured 20")
    assert sources["network per GPU"].endswith("on local-0, local-1")
    assert sorted(before) == sorted(after)
    assert before != after, "on these nodes other layouts are expected to be fast than on nominal ones"


def rates_answer(node, speed):
    row = {"dtype": "bf16", "per_second": speed, "spread": 0.01}
    return {
        "kind": "rates",
        "node": node,
        "ranks": [{"matmul": row, "memory_copy": {"per_second": 2e12}}],
        "problem": "",
    }


def test_only_fit_nodes_count_and_the_slowest_of_them_is_the_rate():
    answers = [rates_answer("a", 7e14), rates_answer("b", 6.8e14), rates_answer("sick", 3e14)]
    answers += [exchange(["a", "b"], 0.004), exchange(["b", "sick"], 0.4)]
    found = measured_rates(answers, ["sick"], 0.0)
    assert found.matmul_flops == {"bf16": 6.8e14}
    assert found.nodes == ("a", "b")
    (one,) = found.collectives
    assert (one.nodes, one.ranks, one.seconds) == (2, 16, answers[3]["rows"][1]["seconds"])
    assert found.between_bytes_per_s == pytest.approx(2**30 / 0.004)


def test_rates_are_of_the_level_at_which_nodes_meet():
    """Between nodes in general: those of no common NVLink domain."""
    answers = [exchange(["a", "b"], 0.002, level="domain"), exchange(["a", "c"], 0.02, level="across")]
    found = measured_rates(answers, [], 0.0)
    near, far = (pytest.approx(2**30 / seconds) for seconds in (0.002, 0.02))
    assert (found.levels_bytes_per_s, found.between_bytes_per_s) == ({"domain": near, "across": far}, far)
    assert {one.level: one.seconds for one in found.collectives} == {
        answer["level"]: answer["rows"][1]["seconds"] for answer in answers
    }


def test_nothing_measured_writes_nothing():
    assert measured_rates([{"kind": "nodes", "nodes": ["a"], "missing": []}], [], 0.0) is None


def test_the_file_is_what_the_site_reads(tmp_path):
    from sweep.doctor.measured import write_measured

    found = measured_rates([rates_answer("a", 7e14), exchange(["a", "b"], 0.004)], [], 0.0)
    write_measured(found, tmp_path / "m.yaml")
    text = (tmp_path / "m.yaml").read_text()
    assert parse_measured(text, "m.yaml") == found
    assert yaml.safe_load(text)["matmul_flops"] == {"bf16": 7e14}
