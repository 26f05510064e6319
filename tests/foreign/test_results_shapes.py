"""Results of earlier versions and of others: shapes of which a record leaves out what follows from the rest."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sweep.foreign.files import read_recorded
from sweep.records.collect import collect
from tests.support.made_sweeps import measured


@pytest.fixture
def table(tmp_path):
    """The results of the sweep in s, which `write` writes elsewhere with another column."""
    sweep = measured(tmp_path / "s")
    collect(sweep.directory)
    return pq.read_table(sweep.directory.results)


def write(table, path, name, values):
    place = table.column_names.index(name)
    pq.write_table(
        table.set_column(place, table.schema.field(name), pa.array(values, table.schema.field(name).type)), path
    )


def test_large_cells_are_predicted_from_records_without_derived_fields_of_their_shapes(tmp_path, table, command):
    whole = [json.loads(text) for text in table["shape_json"].to_pylist()]
    whole = [one | {"num_kv_heads": one["num_heads"]} for one in whole]
    bare = [{key: one[key] for key in one if key not in ("num_kv_heads", "head_dim")} for one in whole]
    for name, shapes in (("whole", whole), ("bare", bare)):
        write(table, tmp_path / f"{name}.parquet", "shape_json", [*map(json.dumps, shapes)])
    same, found = (read_recorded(tmp_path / f"{name}.parquet").candidates for name in ("whole", "bare"))
    assert found.columns.keys() == same.columns.keys()
    assert found.columns["num_kv_heads"].tolist() == same.columns["num_kv_heads"].tolist()
    code, out, err = command("plan", tmp_path / "s" / "grid.yaml", "--from", tmp_path / "bare.parquet", "--json")
    assert (code, len(json.loads(out)["forecast"]["cells"])) == (0, len(same.cell_names)), err


@pytest.mark.parametrize(("shape", "fact"), [
    ('{"num_layers": 2}', "missing"), ('{"hidden_size": 64, "depth": 3}', "depth"), ("[1]", "is no JSON object"),
    ('{"num_layers": 2, "hidden_size": 64, "num_heads": 6, "num_kv_heads": 4, "intermediate_size": 8, "vocab_size": 9}',
     "not a multiple"), ("{", "is not JSON"),
])  # fmt: skip
def test_what_is_no_shape_is_one_clear_error(tmp_path, table, command, shape, fact):
    write(table, tmp_path / "damaged.parquet", "shape_json", [shape] * len(table))
    err = command.refused("plan", tmp_path / "s" / "grid.yaml", "--from", tmp_path / "damaged.parquet")
    assert f"error: {tmp_path / 'damaged.parquet'}: " in err
    assert "shape_json" in err
    assert fact in err


@pytest.mark.parametrize(("column", "value"), [("dp", 0), ("dp", -1), ("run_id", None)])
def test_a_row_with_a_size_below_one_or_without_a_name_is_left_out(tmp_path, table, column, value):
    write(table, tmp_path / "t.parquet", column, [value, *table[column].to_pylist()[1:]])
    assert len(read_recorded(tmp_path / "t.parquet").candidates) == table.num_rows - 1
