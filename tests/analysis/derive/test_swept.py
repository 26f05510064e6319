"""The words for what differs between configurations in addition to their layouts, shown wherever the layout is."""

import json

import numpy as np
import pytest

import analysis
from analysis.derive.swept import LONGEST, shared_words
from analysis.heatmap.cell_text import layout
from tests.support.made_records import made_grid


def swept_of(**columns):
    """The words of a cell whose second configuration is the faster one."""
    rows = made_grid(1, 1, per_cell=2).assign(tokens_per_second_per_gpu=[100.0, 200.0])
    for name, values in columns.items():
        rows[name] = np.array(values, dtype=object)
    (cell,) = analysis.best_per_cell(rows).to_dict("records")
    return cell


@pytest.mark.parametrize(("columns", "words"), [
    ({"dtype": ["bf16", "bf16"], "compile": [True, True]}, []),  # one value throughout
    ({"dtype": [None, "fp8"]}, ["fp8"]),  # the other does not state it
    ({"pp": [2, 1], "pp_schedule": ["1f1b", "gpipe"]}, []),  # one stage has no schedule
    ({"dispatcher": ["alltoall", "deepep"], "ep": [2, 2]}, ["deepep"]),
    ({"dispatcher": ["alltoall", "deepep"], "ep": [2, 1]}, []),  # it dispatches nothing
    ({"pp": [2, 2], "virtual_stages": [1, 2]}, ["VP2"]), ({"pp": [2, 2], "virtual_stages": [2, 1]}, []),
    ({"recompute": ["full", "full"], "recompute_layers": [2, 0]}, []),
    ({"sequence_length": [4096, 8192], "gpu": ["a100", "h100"]}, ["h100", "seq8192"]),  # a table that mixes them
    ({"params_json": ['{"fused": false, "depth": 2}', '{"fused": true, "depth": 2}'],
      "env_json": ["{}", '{"NCCL_ALGO": "Tree"}']}, ["fused=true", "NCCL_ALGO=Tree"]),
])  # fmt: skip
def test_what_differs_and_has_an_effect_is_named(columns, words):
    assert swept_of(**columns)["swept"] == words


def test_number_format_compile_and_schedule_are_in_every_tile_and_table():
    cell = swept_of(dtype=["bf16", "fp8"], compile=[True, False], pp=[2, 2], pp_schedule=["1f1b", "interleaved_1f1b"])
    assert cell["swept"] == layout(cell)[-1] == ["fp8", "eager", "interleaved"]


def test_what_all_share_is_named_where_it_is_not_the_default():
    rows = made_grid(1, 1, per_cell=2).assign(pp_schedule="gpipe", pp=[1, 2], tp_overlap=True, dispatcher="alltoall")
    assert shared_words(rows) == ["gpipe", "tp-overlap"]
    assert shared_words(rows[["model"]]) == []


def test_a_value_that_just_fits_is_whole_a_longer_one_is_cut_and_an_unknown_one_left_out():
    longest = LONGEST - len("techniques=")
    words = [json.dumps({"techniques": "x" * size}) for size in (longest, longest + 1)]
    assert swept_of(params_json=[json.dumps({}), words[0]])["swept"] == ["techniques=" + "x" * longest]
    cut = swept_of(params_json=[json.dumps({}), words[1]], dtype=["bf16", None])
    assert cut["swept"] == ["techniques=" + "x" * (longest - 1) + "…"]
