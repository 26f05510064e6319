"""`sweep memory` as a user meets it: tables, JSON, pictures, mistakes."""

import pytest

from tests.support.command_line import Called

memory = Called("sweep.cli.memory:memory")


def test_table_of_every_stage_and_the_time_line():
    text = memory.shown("8B", "--pp", 4, "--tp", 2, "--dp", 4, "--zero", 1, "--grad-accum", 8)
    assert "first stage  middle stage    last stage" in text
    for word in ("weights", "optimizer states", "activations", "second forward-backward peak", "of 79.6 GiB: fits."):
        assert word in text


@pytest.mark.parametrize(
    ("words", "fits", "kept", "end"),
    [
        (("80B",), False, False, ": does NOT fit, and a plan rejects it.\n"),
        (
            ("8B", "--dp", 8, "--zero", 1, "--sequence-length", 8192), False, True,
            "of 79.6 GiB: over by 3.3%, within the model's error of 10%: a plan accepts it.\n",
        ),
        (("tiny-1M", "--gpu", "cpu"), None, True, "How much memory cpu has is not known.\n"),
    ],
)  # fmt: skip
def test_whether_it_fits_and_whether_a_plan_keeps_it(words, fits, kept, end):
    assert memory.shown(*words).endswith(end)
    found = memory.json(*words)
    assert (found["fits"], found["plan_keeps"]) == (fits, kept)
    if not kept:
        assert found["needed_bytes"] > found["limit_bytes"] > found["available_bytes"]


def test_json_adds_up():
    found = memory.json("8B", "--pp", 2, "--dp", 8, "--zero", 3, "--recompute", "full", "--grad-accum", 4)
    for kinds in found["stages"].values():
        assert sum(v for kind, v in kinds.items() if kind != "total") == pytest.approx(kinds["total"], abs=20)
    heaviest = found["stages"][found["heaviest_stage"]]["total"]
    assert heaviest == max(kinds["total"] for kinds in found["stages"].values())
    assert found["timeline"]["second forward-backward peak"]["total"] == heaviest
    assert found["needed_bytes"] == pytest.approx(heaviest + found["outside_torch_bytes"], abs=20)


def test_every_mistake_at_once():
    found = memory.mistakes("80C", "--gpu", "h101", "--profile", "nemotron", "--optimizer", "adam", "--zero", 9)
    assert {m.split(":")[0] for m in found} == {"MODEL", "--gpu", "--profile", "--optimizer", "--zero"}
    assert any("did you mean 80B" in m for m in found)


def test_layouts_that_cannot_be():
    found = memory.mistakes("8B", "--tp", 3, "--pp", 64, "--cp", 3, "--ep", 2)
    assert [m.split(":")[0] for m in found] == ["--tp", "--tp", "--pp", "--cp", "--ep"]
    assert "tp=3 and the 32 kv heads: neither divides the other" in found[1]
    (text,) = memory.mistakes("3B", "--pp", 32)
    assert "pp=32 stages for 28 layers" in text
    nanotron = memory.json("3B", "--pp", 32, "--profile", "nanotron")
    assert nanotron["stages"]["last"]["activations"] == 0, "its layers are all in earlier stages"


def test_a_shape_that_cannot_be():
    (found,) = memory.mistakes("{num_layers: 0, hidden_size: 64, num_heads: 4, intermediate_size: 8, vocab_size: 9}")
    assert "num_layers must be positive" in found


def test_frozen_weights_have_no_gradients_master_copies_or_moments():
    layout = ("Llama-3-70B", "--tp", 2, "--pp", 4, "--profile", "megatron")
    frozen = memory.json(*layout, "--frozen-weights")["stages"]["first"]
    trained = memory.json(*layout)["stages"]["first"]
    assert [frozen[kind] for kind in ("gradients", "master_weights", "optimizer_states")] == [0, 0, 0]
    assert frozen["weights"] == trained["weights"] > 0
    assert frozen["activations"] == trained["activations"]
