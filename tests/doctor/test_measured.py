"""Rates that the doctor measured reach the file next to the site."""

import pytest
import yaml

from sweep.doctor.measured import measured_rates, write_measured
from sweep.inputs.load import load_site
from sweep.inputs.site import parse_measured
from tests.support.doctor.answers import exchange
from tests.support.doctor.driving import examine


@pytest.mark.parallel
def test_the_rates_of_the_nodes_are_written_next_to_the_site(tmp_path):
    code, report = examine(tmp_path, "perf", "pair", nodes=2)
    assert code == 0, report
    measured = load_site(given=str(tmp_path / "site.yaml")).hardware.measured
    assert measured.provenance.startswith("measured 20")
    assert measured.nodes == ("local-0", "local-1")
    assert measured.between_bytes_per_s > 0
    assert {one.kind for one in measured.collectives} == {"all_reduce"}


def rates_answer(node, speed):
    row = {"dtype": "bf16", "per_second": speed, "spread": 0.01}
    ranks = [{"matmul": row, "memory_copy": {"per_second": 2e12}}]
    return {"kind": "rates", "node": node, "ranks": ranks, "problem": ""}


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
    found = measured_rates([rates_answer("a", 7e14), exchange(["a", "b"], 0.004)], [], 0.0)
    write_measured(found, tmp_path / "m.yaml")
    text = (tmp_path / "m.yaml").read_text()
    assert parse_measured(text, "m.yaml") == found
    assert yaml.safe_load(text)["matmul_flops"] == {"bf16": 7e14}
