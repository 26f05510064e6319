"""Mistakes, and the one "did you mean" of them all."""

import pytest

from sweep.errors import Mistake, SweepError, nearest


@pytest.mark.parametrize(
    ("word", "remedy"),
    [
        ("tpp", "did you mean tp or pp?"),  # the closest first
        ("TP", "did you mean tp?"),
        ("microbatch_size", "did you mean micro_batch_size?"),
        ("xyz", "choose from: micro_batch_size, pp, tp"),
    ],
)
def test_the_nearest_names_or_all_of_them(word, remedy):
    assert nearest(word, ["pp", "tp", "micro_batch_size"]) == remedy


def test_a_name_that_is_part_of_a_word_is_nearer_than_one_that_is_spelt_like_it():
    assert nearest("A100-80GB", ["a100", "a100-40gb", "v100-16gb"]) == "did you mean a100?"
    assert nearest("NVIDIA H100 PCIe", ["h100", "h100-pcie", "h200"]) == "did you mean h100-pcie or h100?"
    assert nearest("Llama-4-8B", ["8B", "Llama-3-8B"]) == "did you mean Llama-3-8B?", "a size alone says less"
    assert nearest("gas", ["gpus", "grad_accum"]) == "did you mean grad_accum?", "a field's abbreviation"


def test_where_there_are_many_or_none():
    assert nearest("xyz", [f"column_{n}" for n in range(100)]).endswith("column_44, …")
    assert nearest("xyz", [f"column_{n}" for n in range(100)], otherwise="see the docs") == "see the docs"
    assert nearest("column_1", ["column_2"], otherwise="see the docs") == "did you mean column_2?"
    assert nearest("xyz", []) == "there are no choices"


def test_a_mistake_states_where_what_and_what_to_do():
    mistake = Mistake("no axis", "grid.yaml", 3, "exclude[0].tpp", "did you mean tp?")
    assert str(mistake) == "grid.yaml:3: exclude[0].tpp: no axis (did you mean tp?)"
    assert str(SweepError([mistake, Mistake("b")])) == f"{mistake}\nb"
