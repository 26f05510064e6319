"""Results of earlier versions and of others: shapes of which a record leaves out what follows from the rest."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sweep.foreign.files import read_recorded
from sweep.outcomes import Outcome
from tests.support.made_sweeps import made, pilot_wrote


def test_large_cells_are_predicted_from_records_without_derived_fields_of_their_shapes(tmp_path, command):
    sweep = made(tmp_path / "s")
    pilot_wrote(sweep, "p0001", *((run.run_id, 1, Outcome.OK) for run in sweep.runs))
    assert command("status", sweep.directory.path)[0] == 0
    assert command("best", sweep.directory.path)[0] == 0
    results = sweep.directory.path / "results.parquet"
    table = pq.read_table(results)
    whole = [json.loads(text) for text in table["shape_json"].to_pylist()]
    whole = [one | {"num_kv_heads": one["num_heads"]} for one in whole]
    bare = [{key: one[key] for key in one if key not in ("num_kv_heads", "head_dim")} for one in whole]
    place = table.column_names.index("shape_json")
    for name, shapes in (("whole", whole), ("bare", bare)):
        texts = pa.array(map(json.dumps, shapes))
        pq.write_table(table.set_column(place, "shape_json", texts), tmp_path / f"{name}.parquet")
    same, found = (read_recorded(tmp_path / f"{name}.parquet").candidates for name in ("whole", "bare"))
    assert found.columns.keys() == same.columns.keys()
    assert found.columns["num_kv_heads"].tolist() == same.columns["num_kv_heads"].tolist()
    code, out, err = command("plan", sweep.directory.grid, "--from", tmp_path / "bare.parquet", "--json")
    assert (code, len(json.loads(out)["forecast"]["cells"])) == (0, len(same.cell_names)), err


@pytest.mark.parametrize(("shape", "fact"), [
    ('{"num_layers": 2}', "missing"), ('{"hidden_size": 64, "depth": 3}', "depth"), ("[1]", "is no JSON object"),
    ('{"num_layers": 2, "hidden_size": 64, "num_heads": 6, "num_kv_heads": 4, "intermediate_size": 8, "vocab_size": 9}',
     "not a multiple"), ("{", "is not JSON"),
])  # fmt: skip
def test_what_is_no_shape_is_one_clear_error(tmp_path, command, shape, fact):
    sweep = made(tmp_path / "s")
    pilot_wrote(sweep, "p0001", *((run.run_id, 1, Outcome.OK) for run in sweep.runs))
    assert command("best", sweep.directory.path)[0] == 0
    table = pq.read_table(sweep.directory.path / "results.parquet")
    place = table.column_names.index("shape_json")
    damaged = table.set_column(place, "shape_json", pa.array([shape] * len(table)))
    pq.write_table(damaged, tmp_path / "damaged.parquet")
    code, out, err = command("plan", sweep.directory.grid, "--from", tmp_path / "damaged.parquet")
    assert (code, out) == (2, "")
    assert f"error: {tmp_path / 'damaged.parquet'}: " in err
    assert "shape_json" in err
    assert fact in err


@pytest.mark.parametrize("value", [0, -1])
def test_a_row_with_a_size_below_one_measures_no_configuration(tmp_path, command, value):
    sweep = made(tmp_path / "s")
    pilot_wrote(sweep, "p0001", *((run.run_id, 1, Outcome.OK) for run in sweep.runs))
    assert command("best", sweep.directory.path)[0] == 0
    table = pq.read_table(sweep.directory.path / "results.parquet")
    place = table.column_names.index("dp")
    given = [value, *table["dp"].to_pylist()[1:]]
    pq.write_table(table.set_column(place, table.schema.field("dp"), pa.array(given)), tmp_path / "t.parquet")
    assert len(read_recorded(tmp_path / "t.parquet").candidates) == table.num_rows - 1
