"""The site file's prices in the results: per node group, and as it states them now."""

import pyarrow.parquet as pq
import pytest

from sweep.errors import SweepError
from sweep.records.collect import collect
from tests.support.made_records import made_record, made_run, made_sweep, record_event, write_journal

SITE = "gpu: h100\ngpus_per_node: 8\n"


@pytest.fixture
def sweep(tmp_path):
    made = made_sweep(tmp_path / "s")
    records = [made_record(made_run(model=model)) for model in ("8B", "8B@new", "8B@old")]
    write_journal(made, "p1", [record_event(record) for record in records])
    return made


def columns(sweep):
    collect(sweep)
    rows = pq.read_table(sweep.results).to_pylist()
    return [(row["model"], row["dollars_per_gpu_hour"], row["co2_g_per_kwh"]) for row in rows]


def test_a_price_changed_after_the_measurement_holds_for_what_was_measured_before(sweep):
    sweep.site.write_text(SITE + "dollars_per_gpu_hour: 2.5\n")
    assert columns(sweep)[0] == ("8B", 2.5, None)
    sweep.site.write_text(SITE + "dollars_per_gpu_hour: 4.0\nco2_g_per_kwh: 50.0\n")
    assert columns(sweep)[0] == ("8B", 4.0, 50.0)
    sweep.site.write_text(SITE)
    assert columns(sweep)[0] == ("8B", None, None)


def test_each_node_group_has_its_own_price_or_the_sites(sweep):
    groups = "node_groups:\n  new: {gpu: b200, dollars_per_gpu_hour: 6.0}\n  old: {gpu: h100}\n"
    sweep.site.write_text(SITE + "dollars_per_gpu_hour: 2.0\n" + groups)
    assert columns(sweep)[1:] == [("8B@new", 6.0, None), ("8B@old", 2.0, None)]


def test_the_sites_rate_of_failures_is_a_column_too(sweep):
    sweep.site.write_text(SITE + "failures_per_gpu_day: 0.5\nrestart_time: 10m\n")
    collect(sweep)
    row = pq.read_table(sweep.results).to_pylist()[0]
    assert (row["failures_per_gpu_day"], row["restart_time"]) == (0.5, 600.0)


def test_a_price_that_is_no_number_is_the_users_error(sweep):
    sweep.site.write_text(SITE + "dollars_per_gpu_hour: cheap\n")
    with pytest.raises(SweepError, match="dollars_per_gpu_hour") as error:
        collect(sweep)
    assert error.value.mistakes[0].line == 3
