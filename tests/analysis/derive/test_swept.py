"""The words for what differs between configurations in addition to their layouts, shown wherever the layout is."""

import json

import numpy as np

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


def test_what_has_one_value_throughout_is_not_named():
    assert swept_of(dtype=["bf16", "bf16"], compile=[True, True])["swept"] == []


def test_number_format_compile_and_schedule_are():
    cell = swept_of(dtype=["bf16", "fp8"], compile=[True, False], pp=[2, 2], pp_schedule=["1f1b", "interleaved_1f1b"])
    assert cell["swept"] == ["fp8", "eager", "interleaved"]
    assert layout(cell)[-1] == ["fp8", "eager", "interleaved"], "in every tile and table"


def test_the_schedule_of_one_stage_is_none():
    assert swept_of(pp=[2, 1], pp_schedule=["1f1b", "gpipe"])["swept"] == []


def test_a_dispatcher_is_named_where_it_dispatches_and_what_all_share_where_it_is_not_the_default():
    assert swept_of(dispatcher=["alltoall", "deepep"], ep=[2, 2])["swept"] == ["deepep"]
    assert swept_of(dispatcher=["alltoall", "deepep"], ep=[2, 1])["swept"] == []
    rows = made_grid(1, 1, per_cell=2).assign(pp_schedule="gpipe", pp=[1, 2], tp_overlap=True, dispatcher="alltoall")
    assert shared_words(rows) == ["gpipe", "tp-overlap"]
    assert shared_words(rows[["model"]]) == []


def test_parameters_and_variables_are_by_the_key_that_differs():
    params = [json.dumps({"fused": False, "depth": 2}), json.dumps({"fused": True, "depth": 2})]
    env = [json.dumps({}), json.dumps({"NCCL_ALGO": "Tree"})]
    assert swept_of(params_json=params, env_json=env)["swept"] == ["fused=true", "NCCL_ALGO=Tree"]


def test_a_sequence_length_and_a_gpu_are_named_where_a_table_mixes_them():
    assert swept_of(sequence_length=[4096, 8192], gpu=["a100", "h100"])["swept"] == ["h100", "seq8192"]


def test_a_long_value_is_cut_and_an_unknown_one_left_out():
    params = [json.dumps({}), json.dumps({"techniques": "x" * 99})]
    (word,) = swept_of(params_json=params, dtype=["bf16", None])["swept"]
    assert word == "techniques=xxxxxxxxxxxxxxxx…"


def test_a_value_that_just_fits_is_whole():
    longest = LONGEST - len("techniques=")
    words = [json.dumps({"techniques": "x" * size}) for size in (longest, longest + 1)]
    assert swept_of(params_json=[json.dumps({}), words[0]])["swept"] == ["techniques=" + "x" * longest]
    assert swept_of(params_json=[json.dumps({}), words[1]])["swept"] == ["techniques=" + "x" * (longest - 1) + "…"]
